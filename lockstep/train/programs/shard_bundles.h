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

// The work of an iteration. All shards lie in the member's range, bundle after bundle.
struct ShardBundles {
  int64_t iteration = 1;
  std::vector<IndexRange> bundles;     // numbers of consecutive shards
  std::vector<IndexRange> rows;        // of the mini-batch, by shard of the member
  IndexRange own;                      // shards of the member
  std::vector<ShardSubtree> subtrees;  // which cover all shards of the member, in order
  std::vector<std::byte*> summaries;   // by shard of the member
  int threads = 1;                     // that compute gradients; numbers of threads are below it
};

// Elements of a parameter, row-major.
struct ParameterPart {
  size_t parameter = 0;
  IndexRange elements;
};

// `rows` rows of a parameter, each of `columns` consecutive elements. `first`: the first element.
// Consecutive rows begin `stride` elements apart.
struct ParameterBlock {
  size_t parameter = 0;
  int64_t first = 0, rows = 0, columns = 0, stride = 0;
};

// Uses sums of gradients block by block, while they are in a cache. Thread-safe for different
// blocks.
class GradientUser {
 public:
  virtual ~GradientUser() = default;
  // Arrays of the parameter's shape, row-major, that use() reads or writes.
  virtual std::span<const float* const> arrays(size_t parameter) const = 0;
  // `sum`: the block's rows, one after another. Only valid during the call.
  virtual void use(const ParameterBlock& block, const float* sum, int thread) = 0;
};

// The part of a shard program that computes bundles. One thread calls prepare_bundles(); then
// several threads call compute_bundle(), once for each bundle; when all bundles are done, several
// threads call add_gradients() or use_gradients(), once for each piece.
class BundledProgram {
 public:
  virtual ~BundledProgram() = default;
  // The argument must stay valid until the iteration ends.
  virtual void prepare_bundles(const ShardBundles& work, int threads) = 0;
  virtual void compute_bundle(size_t bundle, int thread) = 0;
  virtual int64_t gradient_pieces() const = 0;
  virtual void add_gradients(int64_t piece, int thread) = 0;
  // Instead of add_gradients(), if the work has one subtree: gives each block of the piece to
  // `user`. The subtree's memory is not written.
  virtual void use_gradients(int64_t piece, int thread, GradientUser& user) = 0;
  // What a piece writes. Each element belongs to one piece.
  virtual std::vector<ParameterPart> gradient_parts(int64_t piece) const = 0;
};

}  // namespace lockstep
