// One iteration: the mini-batch cut into shards, each computed by one thread, sums by the fixed
// tree, one update.
#pragma once

#include <memory>
#include <vector>

#include "lockstep/base/thread_pool.h"
#include "lockstep/data/mini_batch_queue.h"
#include "lockstep/engine/nn/network.h"
#include "lockstep/train/solver.h"

namespace lockstep {

// Shard j of V covers the rows [first, first + size) of the mini-batch.
struct ShardRange {
  int64_t first = 0, size = 0;
};

// V = ceil(n / shard_size) shards whose sizes differ by at most one, the larger ones first.
std::vector<ShardRange> cut_into_shards(int64_t n, int64_t shard_size);

struct StepResult {
  double loss_sum = 0;  // over observations
  int64_t correct = 0;  // classified right, where labels are learned
};

// Keep the network, solver and pool alive. One thread at a time.
class ShardedStep {
 public:
  // Everything is compiled for mini-batches of `mini_batch_size`; smaller ones are compiled when
  // they come. Of the resolved options shard_size, seed and deterministic matter. Throws
  // InvalidArgument for a network that does not fit its loss.
  ShardedStep(Network& network, Solver& solver, ThreadPool& pool, const TrainingOptions& options);
  ~ShardedStep();

  // Losses and gradients of a mini-batch. `iteration` (from 1) keys the random numbers.
  StepResult compute(const MiniBatch& batch, int64_t iteration);
  // Applies them: solver, moving statistics, copies of learnables. Separate, so that a loss that
  // is not a number can stop before.
  void apply(const UpdateScalars& scalars);
  // state_digest() after apply(), which computed the costly part of it in all threads.
  Digest digest(int64_t iteration) const;

  // Shards that each thread computed since the beginning.
  const std::vector<int64_t>& shards_by_thread() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep
