// Iterations by worker processes, on this machine or other hosts: the client's side. A lost worker
// is replaced. The other workers continue immediately from the last iteration that any of them
// finished.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/train/evaluation/evaluator.h"
#include "lockstep/train/loop/iterations.h"
#include "lockstep/train/workers/membership.h"

namespace lockstep {

// Keeps references to the members of the setup.
class WorkerIterations final : public Iterations {
 public:
  // Starts the workers, which prepare themselves in the background. Throws InvalidArgument in a
  // program without a Runtime.
  explicit WorkerIterations(const WorkerIterationsSetup& setup);
  ~WorkerIterations() override;

  // Handles events of the workers while this process reads images. Lost workers are replaced.
  void attend();
  // Shares the caches with the workers, before anything is read. The cached data is available as
  // long as this object.
  void share(const TrainingImages& images);
  // Begins when all images are read and all options are resolved. Continues with iteration `first`,
  // from the values of network and solver. `evaluator` may be null.
  void begin(Network& network, Solver& solver, std::unique_ptr<Evaluator> evaluator, int64_t first);

  IterationOutcome next(int64_t iteration, int64_t last) override;
  int64_t begun() const override;
  void begin_timing() override {}
  Evaluation validate() override;
  void fetch() override;
  std::vector<int64_t> shards() const override;
  std::optional<Profile> profile() override { return std::nullopt; }

  // All workers of the training, including lost ones.
  std::vector<WorkerSummary> summaries() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep
