// Shards of one member that threads compute together: their rows go through one product, and
// gradients of parameters are summed over all of them (PlanShardSum) without a gradient of each
// shard. The bits are those of shards one by one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "lockstep/base/numeric/index_range.h"

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
  // update ranges can be computed when the bundles of all members are done. use_gradients() also
  // writes the subtree's memory. Null: memory of the program.
  std::byte* operands = nullptr;
};

// Elements of a parameter, row-major.
struct ParameterPart {
  size_t parameter = 0;
  IndexRange elements;
};

// `rows` rows of a parameter, each of `columns` consecutive elements. `first`: the first element.
// Consecutive rows begin `stride` elements apart in the parameter, and `sum_stride` in its sum.
struct ParameterBlock {
  size_t parameter = 0;
  int64_t first = 0, rows = 0, columns = 0, stride = 0, sum_stride = 0;
};

// Uses sums of gradients block by block, while they are in a cache. Thread-safe for different
// blocks.
class GradientUser {
 public:
  virtual ~GradientUser() = default;
  // Arrays of the parameter's shape, row-major, that use() reads or writes.
  virtual std::span<const float* const> arrays(size_t parameter) const = 0;
  // `sum`: of the block's elements. Only valid during the call.
  virtual void use(const ParameterBlock& block, const float* sum, int thread) = 0;
};

// The part of a shard program that computes bundles. One thread calls prepare_bundles(); then
// several threads call compute_bundle(), once for each bundle; when all bundles are done, several
// threads call add_gradients() or use_gradients(), once for each update range.
class BundledProgram {
 public:
  virtual ~BundledProgram() = default;
  // The argument must stay valid until the iteration ends.
  virtual void prepare_bundles(const ShardBundles& work, int threads) = 0;
  virtual void compute_bundle(size_t bundle, int thread) = 0;
  // When all bundles are done: whether gradients can be computed. Otherwise the shards must be
  // computed one by one.
  virtual bool have_operands() { return true; }
  // Of shards with these rows, see ShardBundles. By one thread, and so before update_ranges().
  virtual size_t operand_bytes(std::span<const IndexRange> rows) = 0;
  virtual int64_t update_ranges() const = 0;
  virtual void add_gradients(int64_t range, int thread) = 0;
  // Instead of add_gradients(), if the work has one subtree: gives each block of the update range
  // to `user`. The subtree's memory is not written, except where members share it.
  virtual void use_gradients(int64_t range, int thread, GradientUser& user) = 0;
  // What an update range writes. Each element belongs to one update range.
  virtual std::vector<ParameterPart> gradient_parts(int64_t range) const = 0;
};

}  // namespace lockstep
