// Computes shards by the threads of this process, each shard by one thread.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <vector>

#include "lockstep/base/numeric/arithmetic.h"
#include "lockstep/base/threads/thread_pool.h"
#include "lockstep/train/iteration/host_sum.h"
#include "lockstep/train/iteration/shard_executor.h"
#include "lockstep/train/profile/iteration_profile.h"

namespace lockstep {

class ThreadExecutor final : public ShardExecutor {
 public:
  // `profile`: records the threads' time; null: none. The pool and the profile must stay alive.
  ThreadExecutor(const Network& network, ShardProgram& program, ThreadPool& pool,
                 const ShardExecutorOptions& options, const IterationProfile* profile = nullptr);

  GroupSumOptions sum_options() const override;
  bool work_meanwhile(std::function<bool(bool ahead)> work) override;
  // The sum of gradients over all shards of the iteration finished last.
  GradientSum& sum() { return sum_; }
  const std::byte* summary(const ShardIteration& it, int64_t shard) const override;

 private:
  using Body = std::function<void(int64_t i, int thread, const ArithmeticMode& mode)>;

  void make_sum() override;
  GroupSumOptions partial_sum_options() const;
  int workers() const override { return pool_.size(); }
  void add(ShardIteration& it) override;
  void wait(ShardIteration&) override {}
  void exchange(ShardIteration& it, const TimeLimit& limit) override;
  const Digest* check_digests(int rank) const override;

  void compute(ShardIteration& it, int64_t i, int thread, const ArithmeticMode& mode);
  void compute_one_by_one(ShardIteration& it);
  // What the program computes before the shards of an iteration.
  void compute_before(const ShardIteration& it);
  // Whether these shards can be computed together. Checks, shards that are suspected, and tests
  // that change gradients need the gradients of each shard.
  bool can_bundle(const ShardIteration& it, const IndexRange& shards) const;
  void set_bundles(const ShardIteration& it, HostSum::Together how);
  // Returns false if the shards must be computed one by one.
  bool compute_bundles();
  // Runs body(i) for [0, count). Shards that must be computed alone come last.
  void for_each(const ShardIteration& it, int64_t count, const Body& body);
  int threads() const;  // that compute shards
  // A thread has computed its last part of the sum.
  void end(int thread, const std::atomic<int>& busy);
  void rest(int thread, const std::atomic<int>& busy, bool until_idle = true) const;
  static int64_t shard_of(const ShardIteration& it, int64_t i) {
    return i < it.own.count ? it.own.first + i : it.check->shard;
  }

  ThreadPool& pool_;
  const IterationProfile* const profile_;
  std::function<bool(bool ahead)> meanwhile_;
  std::vector<std::chrono::steady_clock::time_point> ended_;  // shards, by thread
  ShardBundles bundles_;                                      // of the present iteration
  std::vector<std::byte> repeated_[2];                        // summaries of repetitions
  HostSum sum_;
};

}  // namespace lockstep
