// A moving average of the parameters, which a solver keeps with its state.
#pragma once

#include <memory>
#include <vector>

#include "lockstep/train/optimizer/solver.h"

namespace lockstep {

struct TrainingOptions;

// The name of the array of such a solver's state that has the average.
inline constexpr const char* kAverageState = "average";

// Updates as `solver` does and then a = decay * a + (1 - decay) * w of the same elements; after
// iteration 1 a = w. The average is the last array of its state, so that digests, checkpoints and
// messages between workers have it. Throws Unsupported if the network is on a device.
std::unique_ptr<Solver> make_averaged(std::unique_ptr<Solver> solver, Network& network,
                                      double decay);

// The averages, in the order of the parameters; none if the solver keeps none.
std::vector<Tensor> averages_of(const Network& network, const Solver& solver);

// While it exists, the network has the averages for its parameters. Then it has its own again, with
// the same bits. Does nothing if the solver keeps no averages. Nothing else may use network and
// solver at the time when it is made or ends.
class AveragesInPlace {
 public:
  AveragesInPlace(Network& network, const Solver& solver);
  ~AveragesInPlace();
  AveragesInPlace(const AveragesInPlace&) = delete;
  AveragesInPlace& operator=(const AveragesInPlace&) = delete;

 private:
  void exchange();

  Network& network_;
  const std::vector<Tensor> averages_;
};

}  // namespace lockstep
