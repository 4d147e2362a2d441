// Solvers: how gradients change learnables, with their state.
#pragma once

#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "lockstep/engine/kernels/solver.h"
#include "lockstep/engine/nn/network.h"
#include "lockstep/train/options.h"

namespace lockstep {

// What one iteration's update depends on besides the gradients; evaluated once, in double.
struct UpdateScalars {
  double learning_rate = 0;
  int64_t iteration = 1;    // from 1: Adam's bias correction
  double observations = 1;  // gradients are divided by it: what they are sums over
};

using UpdateNumbers =
    std::variant<kernels::SgdmUpdate, kernels::AdamUpdate, kernels::RmspropUpdate>;

// State for every learnable of a network. update() for different learnables may run in several
// threads at once.
class Solver {
 public:
  virtual ~Solver() = default;
  // Changes learnable number `index` of the network the solver was made for. `gradient_sum`:
  // row-major, f32, as many elements as the learnable, on its device, where the work is added to
  // the default queue.
  virtual void update(size_t index, const float* gradient_sum, const UpdateScalars& scalars) = 0;
  // The numbers of such an update, for those who make updates of all learnables at once.
  virtual UpdateNumbers numbers(size_t index, const UpdateScalars& scalars) const = 0;
  // Arrays for learnable `index`, row-major, in a fixed order: digest and checkpoints cover them.
  virtual std::vector<Tensor> state(size_t index) const = 0;
  // Their names, the same for every learnable: "velocity"; "mean", "square".
  virtual std::vector<std::string> state_names() const = 0;
};

// Throws InvalidArgument for a layer to freeze that the network has not.
void check_frozen(const Network& network, const std::vector<std::string>& frozen);

// Whether a learnable ("<layer>.<parameter>") belongs to one of these layers.
bool is_frozen(const std::string& learnable, const std::vector<std::string>& frozen);

// Updates nothing on a device: throws Unsupported where it cannot compute the options' solver or
// gradient threshold.
void try_updates(Device device, const TrainingOptions& options);

// How many arrays it keeps for each learnable.
size_t solver_arrays(const TrainingOptions& options);

// A solver with zero state, on the network's device. The network must outlive it and stay
// initialized. Throws InvalidArgument for an unknown solver, and for a layer to freeze that is not
// there.
std::unique_ptr<Solver> make_solver(Network& network, const TrainingOptions& options);

}  // namespace lockstep
