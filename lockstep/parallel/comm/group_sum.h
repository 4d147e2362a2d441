// The fixed tree over the leaves of a whole group: the same bits however the leaves were dealt.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "lockstep/base/thread_pool.h"
#include "lockstep/parallel/comm/local_group.h"
#include "lockstep/parallel/comm/tree.h"

namespace lockstep {

struct GroupSumOptions {
  size_t count = 0;  // floats that are summed
  int64_t most_leaves = 1;
  size_t leaf_bytes = 0;    // that every leaf says besides, as they are
  size_t member_bytes = 0;  // and every member
  TreeReduction::Order order = TreeReduction::Order::tree;
};

// Sums arrays of floats over leaves that the members of a group have: each adds up the complete
// subtrees within its run, finishes the tree for its slice of the array (whole blocks of 1,024
// elements), and all take the slices of all. One thread at a time, with its pool.
class GroupSum {
 public:
  // Bytes of each member's window that a sum over a LocalGroup takes (see LocalGroupOptions).
  static size_t window_bytes(const GroupSumOptions& options, int members);

  // Keep the group and the pool alive. Partial sums go through the windows of a LocalGroup, which
  // must have window_bytes(), and by messages over any other, or where it is given as one.
  GroupSum(LocalGroup& group, ThreadPool& pool, const GroupSumOptions& options);
  GroupSum(Group& group, ThreadPool& pool, const GroupSumOptions& options);
  ~GroupSum();

  // Begins a sum over the runs of all members, by rank. This member's leaves go to leaf() and
  // add(), which are thread-safe.
  void begin(int64_t leaves, std::span<const LeafRun> runs);
  // The bytes that a leaf of this member says besides.
  std::byte* leaf(int64_t leaf);
  void add(int64_t leaf, const float* values);
  // The bytes that this member says.
  std::byte* own();
  // When all leaves of this member are added. Throws as collectives do.
  void finish(const TimeLimit& limit);

  // Then: the sum, which may be changed, and what each leaf of anybody said, until the next
  // begin().
  float* result() const;
  const std::byte* said(int64_t leaf) const;
  const std::byte* said_by(int rank) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep
