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
};

// Elements of a parameter, row-major.
struct ParameterPart {
  size_t parameter = 0;
  IndexRange elements;
};

// The part of a shard program that computes bundles. One thread calls prepare_bundles(); then
// several threads call compute_bundle(), once for each bundle; when all bundles are done, several
// threads call add_gradients(), once for each piece.
class BundledProgram {
 public:
  virtual ~BundledProgram() = default;
  // The argument must stay valid until the iteration ends.
  virtual void prepare_bundles(const ShardBundles& work, int threads) = 0;
  virtual void compute_bundle(size_t bundle, int thread) = 0;
  virtual int64_t gradient_pieces() const = 0;
  virtual void add_gradients(int64_t piece, int thread) = 0;
  // What a piece writes. Each element belongs to one piece.
  virtual std::vector<ParameterPart> gradient_parts(int64_t piece) const = 0;
};

}  // namespace lockstep
