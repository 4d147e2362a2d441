// Shards of one member that threads compute together: their rows go through one product, and
// gradients of parameters are summed over all of them (PlanShardSum) without a gradient of each
// shard. The bits are those of shards one by one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "lockstep/base/numeric/index_range.h"
#include "lockstep/train/optimizer/gradient_sum.h"

namespace lockstep {

// A complete subtree of the tree over shards, and the memory for its sum in the gradient layout.
struct ShardSubtree {
  IndexRange shards;
  std::byte* sum = nullptr;
};

// The work of an iteration. All bundles lie within the range of shards, one after another.
struct ShardBundles {
  int64_t iteration = 1;
  std::vector<IndexRange> bundles;     // numbers of consecutive shards
  IndexRange shards;                   // that gradients are summed over
  std::vector<IndexRange> rows;        // of the mini-batch, by shard of the range
  std::vector<ShardSubtree> subtrees;  // which cover the range, in order
  std::vector<std::byte*> summaries;   // by shard of the range
  int threads = 1;                     // that compute gradients; numbers of threads are below it
  // Memory of operand_bytes() for what gradients are computed from, if members of a group share it.
  // The bundles are then those of this member, and the range is the whole mini-batch. Gradients of
  // update ranges can be computed when the bundles of all members are done. give_gradients() also
  // writes the subtree's memory. Null: memory of the program.
  std::byte* operands = nullptr;
};

// The part of a shard program that computes bundles. One thread calls prepare_bundles(); then
// several threads call compute_bundle(), once for each bundle; when all bundles are done, several
// threads call add_gradients() or give_gradients(), once for each update range.
class BundledProgram {
 public:
  virtual ~BundledProgram() = default;
  // The argument must stay valid until the iteration ends.
  virtual void prepare_bundles(const ShardBundles& work, int threads) = 0;
  virtual void compute_bundle(size_t bundle, int thread) = 0;
  // When all bundles are done: whether gradients can be computed. Otherwise the shards must be
  // computed one by one.
  virtual bool have_operands() { return true; }
  // Of shards with these rows, see ShardBundles. By one thread, and so before ranges().
  virtual size_t operand_bytes(std::span<const IndexRange> rows) = 0;
  // What update ranges write. The same object as long as they stay the same.
  virtual const std::shared_ptr<const UpdateRanges>& ranges() const = 0;
  // Writes the sums of an update range to the memory of all subtrees.
  virtual void add_gradients(int64_t range, int thread) = 0;
  // Instead of add_gradients(), if the work has one subtree: gives each block of the update range
  // to `sink`. The subtree's memory is not written, except where members share it.
  virtual void give_gradients(int64_t range, int thread, GradientSink& sink) = 0;
};

}  // namespace lockstep
