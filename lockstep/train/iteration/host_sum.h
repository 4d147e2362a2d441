// The sum of the gradients of an iteration's shards on the CPU, alone or over the members of a
// group. All ways to it add in the order of the fixed tree:
//
//  - shards one by one: each adds its gradients, and members exchange partial sums;
//  - shards together: gradients are computed over all shards from kept operands, when they are
//    asked for; members exchange partial sums, which are computed before;
//  - the same with members that share operands: they divide the update ranges.
#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "lockstep/base/threads/thread_pool.h"
#include "lockstep/base/time_limit.h"
#include "lockstep/parallel/reduce/group_sum.h"
#include "lockstep/train/iteration/memory_sum.h"
#include "lockstep/train/iteration/shard_executor.h"

namespace lockstep {

// One thread at a time, but for group_sum().add(). In an iteration begin() and together(),
// then all shards: computed together and have_operands(), or each with group_sum().add(). Then
// exchange(), in_memory() if it is wanted, and run().
class HostSum final : public GradientSum {
 public:
  // Threads without an update range call `rest`; see for_each_in_place(). The program, the pool and
  // the profile must stay alive.
  HostSum(ShardProgram& program, ThreadPool& pool,
          std::function<void(int thread, const std::atomic<int>& busy)> rest,
          const IterationProfile* profile);

  // Makes memory for sums as a member of the group, which must stay alive. `shared`: the same group
  // if members share memory, whose windows are used; else null. `limit`: the most seconds to wait
  // for other members.
  void make(Group& group, LocalGroup* shared, const GroupSumOptions& options, double limit);

  void begin(const ShardIteration& it);
  // What shards that are computed together write.
  struct Together {
    IndexRange shards;  // that gradients are summed over
    std::vector<ShardSubtree> subtrees;
    std::byte* operands = nullptr;  // see ShardBundles
  };
  // If shards can be computed together in this iteration: how. `can`: whether these shards may be.
  std::optional<Together> together(const ShardIteration& it,
                                   const std::function<bool(const IndexRange& shards)>& can);
  // All bundles of this member are computed.
  void have_operands();
  // This member's partial sums are there. Throws like collectives.
  void exchange(const ShardIteration& it, const TimeLimit& limit);
  // For leaves and their metadata.
  GroupSum& group_sum() const { return *sum_; }

  std::shared_ptr<const UpdateRanges> ranges(const GradientSink& sink) override;
  void run(GradientSink& sink) override;
  MemorySum& in_memory() override;

 private:
  void for_each_range(int64_t count,
                      const std::function<void(int64_t i, int thread)>& compute_range);
  // Writes the partial sums of shards that were computed together.
  void add_gradients();
  // run() of a member that shares the sum with others.
  void run_shared(GradientSink& sink);
  // Chooses the update ranges of this member.
  void divide(const std::vector<IndexRange>& partition);
  // Of a sum that members share: a part of an update range.
  float* shared_elements(const ParameterPart& part) const;
  // In tests: fills the memory of an update range that this member is to compute.
  void fill_range(int64_t range);
  // Gives an update range that another member has computed.
  void give_published(int64_t range, GradientSink& sink, int thread);

  ShardProgram& program_;
  BundledProgram* bundled_ = nullptr;  // in this iteration
  ThreadPool& pool_;
  const std::function<void(int thread, const std::atomic<int>& busy)> rest_;
  const IterationProfile* const profile_;
  Group* group_ = nullptr;
  std::unique_ptr<GroupSum> sum_;
  std::optional<MemorySum> memory_;  // of the result; made when it is needed
  size_t operand_bytes_ = 0;         // that members share
  int64_t iteration_ = 0;
  bool divides_ = false;               // members divide the update ranges of this iteration
  bool unfinished_ = false;            // gradients are still to be computed from operands
  double limit_ = 1;                   // seconds for the other members
  std::vector<IndexRange> partition_;  // that update ranges are divided by
  std::vector<int64_t> own_, of_others_;
  std::exception_ptr lost_;  // the failure of the group, after which this member has gone on alone
};

}  // namespace lockstep
