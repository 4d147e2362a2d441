// Computes iterations by threads of this process, alone or as a member of a group.
#pragma once

#include "lockstep/base/threads/thread_pool.h"
#include "lockstep/train/evaluation/evaluator.h"
#include "lockstep/train/loop/iterations.h"
#include "lockstep/train/step/training_step.h"

namespace lockstep {

struct LocalIterationsSetup {
  Network& network;
  Solver& solver;
  ThreadPool& pool;
  const TrainingOptions& options;  // resolved
  const TrainingData& data;
  TrainingImages images;
  std::vector<MetricPtr> metrics = {};                // of validations
  std::function<double(int64_t)> learning_rate = {};  // by iteration
  bool profile = false;
};

// Keeps references to the members of the setup.
class LocalIterations final : public Iterations {
 public:
  // Begins with iteration `first`; 0: with the one that join() sets. Throws what the constructors
  // of queue, step and evaluator throw.
  LocalIterations(const LocalIterationsSetup& setup, int64_t first);
  ~LocalIterations() override;

  IterationOutcome next(int64_t iteration, int64_t last) override;
  int64_t begun() const override;
  void begin_timing() override;
  Evaluation validate() override;
  void fetch() override {}
  std::vector<int64_t> shards() const override;
  std::optional<Profile> profile() override;

  // For members of a group: computes an iteration with the given learning rate.
  IterationOutcome compute(int64_t iteration, double learning_rate);
  TrainingStep& step();
  // Null without validation data.
  Evaluator* evaluator();
  // Joins a group and continues with iteration `next`. `loads` and `limit` as in
  // TrainingStep::join().
  void join(std::shared_ptr<Group> group, std::vector<double> loads, double limit, int64_t next);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep
