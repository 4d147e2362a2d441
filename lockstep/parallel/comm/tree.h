// The fixed tree: sums whose bits do not depend on who computed the terms, or when.
//
// Leaves are shards in order. A node over n leaves splits at the largest power of two below n.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace lockstep {

// Largest power of two below n, for n >= 2.
int64_t tree_split(int64_t n);

// Leaves in [first, first + count).
struct LeafRun {
  int64_t first = 0, count = 0;
  friend bool operator==(const LeafRun&, const LeafRun&) = default;
};

// The largest subtrees of the tree over `leaves` that lie within a run, in order: what one who has
// that run alone can add up.
std::vector<LeafRun> complete_subtrees(int64_t leaves, const LeafRun& run);

// Sum of values by the fixed tree, in double. 0 for none.
double tree_sum(std::span<const double> values);

// Sums arrays of floats over leaves that arrive in any order, from any thread. Whoever brings the
// second of two siblings adds them and goes on upwards, so that few arrays are kept at a time.
// Memory is kept for reuse from step to step.
class TreeReduction {
 public:
  // How terms are added: by the tree, or one after the other as they arrive, which breaks the law
  // (deterministic = false).
  enum class Order { tree, of_arrival };

  // Arrays of `count` floats.
  explicit TreeReduction(size_t count, Order order = Order::tree);
  ~TreeReduction();

  // Begins a sum over `leaves` >= 1 leaves. No leaf of another sum may be under way.
  void begin(int64_t leaves);
  // The same where only the leaves of `run` will come: the sum of each of roots() goes to one of
  // `partials`, in their order. result() is not touched.
  void begin(int64_t leaves, const LeafRun& run, std::span<float* const> partials);
  // The partial sums of a run: its complete_subtrees(), or, as they arrive, one of all.
  std::vector<LeafRun> roots(int64_t leaves, const LeafRun& run) const;
  // Adds leaf number `leaf`, once each. Thread-safe. Returns true for the call that completed the
  // sum, or the partial one.
  bool add(int64_t leaf, const float* values);
  // The sum, after add() returned true. The address stays the same for all sums;
  // the values may be changed until the next begin().
  float* result() const;
  Order order() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep
