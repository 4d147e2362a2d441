// Sums of parameter gradients over the shards of a member, without a gradient of each shard.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lockstep/base/numeric/index_range.h"
#include "lockstep/engine/device/allocator.h"
#include "lockstep/engine/plan/plan.h"
#include "lockstep/train/programs/shard_bundles.h"

namespace lockstep {

// One thread calls begin(). Several threads call keep() for different rows, and later add() for
// different update ranges.
class ShardSums {
 public:
  // All plans of a program have equal sums. `layout` must stay valid.
  ShardSums(const std::vector<PlanShardSum>& sums, const GradientLayout& layout);

  void begin(const ShardBundles& work);
  // Memory for the operands of shards with these rows.
  size_t operand_bytes(std::span<const IndexRange> rows) const;
  // Keeps the operands of a run whose rows begin with row `first` of the member.
  void keep(const PlanRun& run, int64_t first);
  int64_t update_ranges() const { return static_cast<int64_t>(ranges_.size()); }
  // Number of the sum that an update range belongs to.
  size_t sum_of(int64_t range) const { return ranges_[static_cast<size_t>(range)].sum; }
  void add(int64_t range) const;
  // Same, if the work has one subtree: gives each block of the update range to `sink`. Each thread
  // has memory of its own for it, except where members share the subtree's memory.
  void compute(int64_t range, int thread, GradientSink& sink);
  std::vector<ParameterPart> parts(int64_t range) const;
  void add_to(UpdateRanges& ranges) const;

 private:
  struct UpdateRange {
    size_t sum = 0;
    int64_t number = 0;
  };

  // A thread's memory for a block of each result.
  struct ThreadBlock {
    Memory memory;
    kernels::ShardRoot root;
  };

  void make_space(std::byte* shared);
  void set_roots(size_t sum, std::span<const ShardSubtree> subtrees);
  // Makes a root of a thread's own memory.
  const kernels::ShardRoot& own_block(int thread, size_t results, int64_t columns);

  const std::vector<PlanShardSum> sums_;
  const GradientLayout& layout_;
  std::vector<UpdateRange> ranges_;
  std::vector<Memory> own_;                 // by sum
  std::vector<std::byte*> kept_;            // operands, by sum
  std::vector<kernels::ShardLeaf> leaves_;  // the fixed tree over the shards, as kernels take it
  std::vector<std::vector<kernels::ShardRoot>> roots_;  // by sum, then by subtree
  std::vector<ThreadBlock> blocks_;                     // by thread
  bool shared_ = false;                                 // operands and sum, with other members
};

}  // namespace lockstep
