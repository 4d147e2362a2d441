// A training step by the threads of this process, alone or as a member of a group: each shard is
// computed by one thread of one member.
#pragma once

#include <memory>
#include <vector>

#include "lockstep/train/training_step.h"

namespace lockstep {

class ShardedStep final : public TrainingStep {
 public:
  // See make_training_step(). Everything is compiled for mini-batches of mini_batch_size; smaller
  // ones are compiled when they come.
  ShardedStep(Network& network, Solver& solver, ThreadPool& pool, const TrainingOptions& options,
              DType inputs = DType::u8, StepLedger* ledger = nullptr);
  ~ShardedStep() override;

  void join(std::unique_ptr<Group> group, std::vector<double> loads, double limit) override;
  GroupSumOptions sum_options() const override;
  int64_t check_frequency() const override;
  void watch(std::function<void(int thread, int64_t shard)> watch) override;
  void compute_alone(std::vector<ShardOfIteration> shards) override;
  bool work_meanwhile(std::function<bool(bool ahead)> work) override;
  double shard_seconds() const override;

  StepResult compute(const MiniBatch& batch, int64_t iteration) override;
  void apply(const UpdateScalars& scalars) override;
  // apply() computed the costly part of it in all threads.
  Digest digest(int64_t iteration) override;
  const std::vector<int64_t>& shards_by_worker() const override;
  void time_passes() override;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep
