// Sums of arrays by the fixed tree (schedule.h), over leaves that arrive in any order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "lockstep/base/numeric/index_range.h"
#include "lockstep/parallel/reduce/schedule.h"

namespace lockstep {

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
  // The same for the leaves of these subtrees alone, one after another: see SumSchedule::subtrees.
  // The sum of each is written to its partial sum. result() is not modified.
  void begin(std::span<const IndexRange> subtrees, std::span<float* const> partials);
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
