// Iterations by the threads of this process, alone or as a member of a group.
#pragma once

#include "lockstep/base/thread_pool.h"
#include "lockstep/train/evaluator.h"
#include "lockstep/train/iterations.h"
#include "lockstep/train/training_step.h"

namespace lockstep {

struct LocalIterationsSetup {
  Network& network;
  Solver& solver;
  ThreadPool& pool;
  const TrainingOptions& options;  // resolved
  const TrainingData& data;
  TrainingImages images;
  std::vector<MetricPtr> metrics = {};                // of validations
  std::function<double(int64_t)> learning_rate = {};  // of an iteration
  bool profile = false;
};

// Keeps what the setup refers to.
class LocalIterations final : public Iterations {
 public:
  // Iterations from `first` on; 0: join() says where. Throws what making queue, step and evaluator
  // throws.
  LocalIterations(const LocalIterationsSetup& setup, int64_t first);
  ~LocalIterations() override;

  IterationOutcome next(int64_t iteration, int64_t last) override;
  int64_t begun() const override;
  void begin_timing() override;
  Evaluation validate() override;
  void fetch() override {}
  std::vector<int64_t> shards() const override;
  std::optional<Profile> profile() override;

  // For members of a group. An iteration with a learning rate that is given.
  IterationOutcome compute(int64_t iteration, double learning_rate);
  TrainingStep& step();
  // Null without validation data.
  Evaluator* evaluator();
  // Joins a group and goes to an iteration. `loads` and `limit` as in TrainingStep::join().
  void join(std::unique_ptr<Group> group, std::vector<double> loads, double limit, int64_t next);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep
