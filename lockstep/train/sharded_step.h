// A training step by the threads of this process, alone or as a member of a group: each shard is
// computed by one thread of one member.
#pragma once

#include <memory>
#include <vector>

#include "lockstep/parallel/comm/group_sum.h"
#include "lockstep/train/training_step.h"

namespace lockstep {

class ShardedStep final : public TrainingStep {
 public:
  // See make_training_step(). Everything is compiled for mini-batches of mini_batch_size; smaller
  // ones are compiled when they come.
  ShardedStep(Network& network, Solver& solver, ThreadPool& pool, const TrainingOptions& options,
              DType inputs = DType::u8, StepLedger* ledger = nullptr);
  ~ShardedStep() override;

  // Computes as a member of a group from now on: the shards that its load gives it; sums and
  // statistics are those of all. `loads`: of each member, see deal_leaves(). `limit`: seconds that
  // a meeting with the others may take. Begins with the first meeting's memory untouched.
  void join(std::unique_ptr<LocalGroup> group, std::vector<double> loads, double limit);
  // `watch` is told by each thread when it begins a shard of the mini-batch (from 0), and when it
  // has ended one (-1).
  void watch(std::function<void(int thread, int64_t shard)> watch);
  // Of one shard, of the last mini-batch.
  double shard_seconds() const;
  // What a group's windows must hold (see GroupSum::window_bytes()).
  GroupSumOptions sum_options() const;

  // Throws ShardsDiffer where a check fails, in a group Timeout and WorkerLost; then learnables,
  // states and solver are as before.
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
