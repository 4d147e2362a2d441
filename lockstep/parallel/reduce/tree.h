// The fixed tree: sums whose bits do not depend on which worker computed the terms, or when.
//
// Leaves are shards in order. A node over n leaves splits at the largest power of two below n.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "lockstep/base/numeric/index_range.h"

namespace lockstep {

// Largest power of two below n, for n >= 2.
int64_t tree_split(int64_t n);

// The largest subtrees of the tree over `leaves` that lie within `range`, in order: the
// sums that a worker with only this range can compute.
std::vector<IndexRange> complete_subtrees(int64_t leaves, const IndexRange& range);

// Sum of values by the fixed tree, in double; 0 for no values.
double tree_sum(std::span<const double> values);

// Sums arrays of floats over leaves that arrive in any order, from any thread. The thread that adds
// the second of two siblings sums them and continues upwards, so that few arrays are kept at a
// time. Memory is reused from step to step.
class TreeReduction {
 public:
  // The order of additions: by the tree, or in order of arrival, which is not reproducible
  // (deterministic = false).
  enum class Order { tree, of_arrival };

  // Arrays of `count` floats.
  explicit TreeReduction(size_t count, Order order = Order::tree);
  ~TreeReduction();

  // Begins a sum over `leaves` >= 1 leaves. No add() of an earlier sum may be running.
  void begin(int64_t leaves);
  // The same if only the leaves of `range` will be added. The sums of roots() are written to
  // `partials`, in order. result() is not modified.
  void begin(int64_t leaves, const IndexRange& range, std::span<float* const> partials);
  // The partial sums of a range: its complete_subtrees(), or a single one for Order::of_arrival.
  std::vector<IndexRange> roots(int64_t leaves, const IndexRange& range) const;
  // Adds leaf number `leaf`, once for each leaf. Thread-safe. Returns true if this call completed
  // the sum or a partial sum.
  bool add(int64_t leaf, const float* values);
  // The sum, after add() has returned true. The address stays the same for all sums. The values may
  // be modified until the next begin().
  float* result() const;
  Order order() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep
