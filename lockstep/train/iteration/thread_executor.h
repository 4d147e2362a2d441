// Computes shards by the threads of this process, each shard by one thread.
#pragma once

#include <atomic>
#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "lockstep/base/numeric/arithmetic.h"
#include "lockstep/base/threads/thread_pool.h"
#include "lockstep/parallel/reduce/group_sum.h"
#include "lockstep/train/iteration/shard_executor.h"
#include "lockstep/train/profile/iteration_profile.h"

namespace lockstep {

// The gradient sum is in host memory.
class ThreadExecutor final : public ShardExecutor, private UnfinishedSum {
 public:
  // `profile`: records the threads' time; null: none. The pool and the profile must stay alive.
  ThreadExecutor(const Network& network, ShardProgram& program, ThreadPool& pool,
                 const ShardExecutorOptions& options, const IterationProfile* profile = nullptr);

  GroupSumOptions sum_options() const override;
  bool work_meanwhile(std::function<bool(bool ahead)> work) override;
  void leave_sum_unfinished(bool leave) override { leaves_sum_ = leave; }
  UnfinishedSum* unfinished_sum() override { return unfinished_ ? this : nullptr; }
  std::byte* gradient_sum() override;
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
  // Whether the members of a group divide the update ranges of the gradients, not only the shards.
  // All members decide alike.
  bool can_divide_update_ranges(const ShardIteration& it) const;
  void set_bundles(const ShardIteration& it, const IndexRange& shards,
                   const std::vector<GroupSum::Partial>& partials);
  // Returns false if the shards must be computed one by one.
  bool compute_bundles();
  // Chooses the update ranges of this member.
  void divide_update_ranges(const ShardIteration& it);
  int64_t update_ranges() const override { return program().bundled()->update_ranges(); }
  std::vector<ParameterPart> parts(int64_t range) const override {
    return program().bundled()->gradient_parts(range);
  }
  void compute(GradientUser& user,
               const std::function<void(int64_t range, int thread)>& then) override;
  // compute() of a member that shares the sum with others.
  void compute_shared(GradientUser& user,
                      const std::function<void(int64_t range, int thread)>& then);
  // Where members share the sum: a part of an update range.
  float* shared_elements(const ParameterPart& part) const;
  // In tests: fills the memory of an update range that this member is to compute.
  void fill_range(int64_t range) const;
  // Uses an update range that another member has computed.
  void use_published(int64_t range, GradientUser& user, int thread);
  // Calls compute_range(i, thread) for [0, count): update ranges of the sum.
  void for_each_range(int64_t count,
                      const std::function<void(int64_t i, int thread)>& compute_range);
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
  std::unique_ptr<GroupSum> sum_;
  std::vector<std::chrono::steady_clock::time_point> ended_;  // shards, by thread
  bool leaves_sum_ = false, unfinished_ = false;
  size_t operand_bytes_ = 0;            // that members share
  bool divides_update_ranges_ = false;  // in this iteration
  std::vector<IndexRange> partition_;   // that update ranges are divided by
  std::vector<int64_t> own_ranges_, ranges_of_others_;
  std::exception_ptr lost_;  // the failure of the group, after which this member has gone on alone
  ShardBundles bundles_;     // of the present iteration
  std::vector<std::byte> repeated_[2];  // summaries of repetitions
};

}  // namespace lockstep
