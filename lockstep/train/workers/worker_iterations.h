// Iterations by worker processes of this machine: the client's side. Who dies is replaced; the
// others go on at once, from the last iteration that anybody finished.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/train/evaluation/evaluator.h"
#include "lockstep/train/loop/iterations.h"
#include "lockstep/train/workers/membership.h"

namespace lockstep {

// Keeps what the setup refers to.
class WorkerIterations final : public Iterations {
 public:
  // Starts the workers, which prepare themselves meanwhile. Throws InvalidArgument in a program
  // without a Runtime.
  explicit WorkerIterations(const WorkerIterationsSetup& setup);
  ~WorkerIterations() override;

  // Hears the workers, while this process reads images: who is lost is replaced.
  void attend();
  // Lets the workers use the caches, before anything is read. What is read is there as long as this
  // is.
  void share(const TrainingImages& images);
  // When they are read and everything is resolved: iterations from `first` on, with the values
  // that network and solver have. `evaluator` may be null.
  void begin(Network& network, Solver& solver, std::unique_ptr<Evaluator> evaluator, int64_t first);

  IterationOutcome next(int64_t iteration, int64_t last) override;
  int64_t begun() const override;
  void begin_timing() override {}
  Evaluation validate() override;
  void fetch() override;
  std::vector<int64_t> shards() const override;
  std::optional<Profile> profile() override { return std::nullopt; }

  // Every worker there was.
  std::vector<WorkerSummary> summaries() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep
