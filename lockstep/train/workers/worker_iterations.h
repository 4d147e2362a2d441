// Iterations by worker processes, on this machine or other hosts: the client's side. A lost worker
// is replaced. The other workers continue immediately from the last iteration that any of them
// finished.
#pragma once

#include <memory>
#include <vector>

#include "lockstep/parallel/process/function.h"
#include "lockstep/train/loop/iterations.h"
#include "lockstep/train/workers/training_workers.h"

namespace lockstep {

class WorkerIterations final : public Iterations {
 public:
  // Starts options.workers.count processes, each of which makes the problem. They prepare
  // themselves in the background. Throws InvalidArgument in a program without a Runtime.
  WorkerIterations(const IterationsSetup& setup, const Call<TrainingProblem>& problem,
                   const TrainingWorkers& workers);
  ~WorkerIterations() override;

  void share(const TrainingImages& images) override;
  void attend() override;
  void begin(const IterationsStart& start) override;
  IterationOutcome next(int64_t iteration, int64_t last) override;
  int64_t begun() const override;
  void begin_timing() override {}
  Evaluation validate() override;
  std::optional<NotFinite> not_finite() override;
  void fetch() override;
  std::vector<int64_t> shards() const override;
  std::vector<WorkerSummary> workers(bool exact) const override;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep
