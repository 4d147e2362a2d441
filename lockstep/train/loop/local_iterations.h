// Computes iterations by threads of this process, alone or as a member of a group.
#pragma once

#include "lockstep/train/evaluation/evaluator.h"
#include "lockstep/train/iteration/training_iteration.h"
#include "lockstep/train/loop/iterations.h"

namespace lockstep {

class LocalIterations final : public Iterations {
 public:
  explicit LocalIterations(const IterationsSetup& setup);
  ~LocalIterations() override;

  // First iteration 0: the one that join() sets.
  void begin(const IterationsStart& start) override;
  IterationOutcome next(int64_t iteration, int64_t last) override;
  int64_t begun() const override;
  void begin_timing() override;
  Evaluation validate() override;
  std::optional<NotFinite> not_finite() override;
  void fetch() override {}
  std::vector<int64_t> shards() const override;
  std::optional<Profile> profile() override;

  // For members of a group: computes an iteration with the given learning rate.
  IterationOutcome compute(int64_t iteration, double learning_rate);
  TrainingIteration& step();
  // Null without validation data.
  Evaluator* evaluator();
  // Joins a group and continues with iteration `next`. `loads` and `limit` as in
  // TrainingIteration::join().
  void join(std::shared_ptr<Group> group, std::vector<double> loads, double limit, int64_t next);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep
