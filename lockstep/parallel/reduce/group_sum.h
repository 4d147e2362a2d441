// The fixed tree over the leaves of a whole group: the same bits for every partition of the leaves.
#pragma once

#include <memory>
#include <vector>

#include "lockstep/base/numeric/index_range.h"
#include "lockstep/base/threads/thread_pool.h"
#include "lockstep/parallel/comm/local_group.h"
#include "lockstep/parallel/reduce/tree.h"

namespace lockstep {

struct GroupSumOptions {
  size_t count = 0;  // number of floats in each array
  int64_t most_leaves = 1;
  size_t leaf_metadata_bytes = 0;    // metadata of each leaf, copied to all members
  size_t member_metadata_bytes = 0;  // metadata of each member, likewise
  TreeReduction::Order order = TreeReduction::Order::tree;
  // For sums whose update ranges members divide, see GroupSum::operands(); 0: none.
  size_t operand_bytes = 0;
  int64_t update_ranges = 0;
};

// Sums arrays of floats over leaves that are partitioned among the members of a group. Each member
// adds up the complete subtrees within its range of leaves, then finishes the tree for its slice of
// the array (whole blocks of 1,024 elements). Then all members receive all slices. One thread at a
// time, with its pool.
class GroupSum {
 public:
  // Size of each member's window that a sum over a LocalGroup needs (see LocalGroupOptions).
  static size_t window_bytes(const GroupSumOptions& options, int members);

  // The group and the pool must outlive it. The first constructor passes partial sums through the
  // group's windows; InvalidArgument if these have less than window_bytes(). The second one sends
  // messages, over any group.
  GroupSum(LocalGroup& group, ThreadPool& pool, const GroupSumOptions& options);
  GroupSum(Group& group, ThreadPool& pool, const GroupSumOptions& options);
  ~GroupSum();

  // Begins a sum over the leaves of all members. This member's leaves are passed to
  // own_leaf_metadata() and add(), which are thread-safe.
  void begin(std::shared_ptr<const SumSchedule> schedule);
  // The metadata of a leaf of this member, for writing (of a training: the summary of a shard).
  std::byte* own_leaf_metadata(int64_t leaf);
  void add(int64_t leaf, const float* values);
  // A complete subtree of this member's leaves, and the memory for its sum.
  struct Partial {
    IndexRange leaves;
    float* sum = nullptr;
  };
  // After begin(): the subtrees, which cover the member's leaves in order. A caller who writes all
  // of them must not call add(). Empty if leaves are added in order of arrival.
  std::vector<Partial> partials() const;
  // The metadata of this member, for writing.
  std::byte* own_member_metadata();
  // Must be called when all leaves of this member are added. Throws like collectives.
  void finish(const TimeLimit& limit);

  // Another way to a sum, for leaves that are computed from operands which are smaller. Members of
  // a LocalGroup write the operands of their leaves into memory that they share. Then they divide
  // the sum's update ranges, and each range is computed over all leaves. All members must choose
  // the same way.
  //
  //   begin(); ... operands() ...; exchange_operands();
  //   if (claim(range)) { ... shared_sum() ...; publish(range); }   // for each update range
  //   finish_update_ranges();
  //
  // After exchange_operands() every member has all operands, until its next begin(). So it can
  // compute what others have not published if finish_update_ranges() throws because a member was
  // lost.
  //
  // Marks of update ranges stay in the windows, so only one GroupSum with such ranges may use a
  // group's windows.

  // After begin(): memory of operand_bytes; null if members share none, or if leaves are added in
  // order of arrival.
  std::byte* operands() const;
  // Instead of finish(): all operands and metadata are in place. Throws like collectives.
  void exchange_operands(const TimeLimit& limit);
  // The sum, all elements, for writing after exchange_operands().
  float* shared_sum() const;
  // Whether this call is the first for the update range among all members and threads; the caller
  // must then compute it. The functions for update ranges are thread-safe.
  bool claim(int64_t range);
  // Tells the others that the update range is in place.
  void publish(int64_t range);
  bool published(int64_t range) const;
  // Waits until all members have called it. Throws like collectives.
  void finish_update_ranges(const TimeLimit& limit);

  // The results, valid until the next begin(): the sum (its address stays the same; other members
  // may read it, so it must not be modified), and the metadata of any leaf and any member.
  float* result() const;
  const std::byte* leaf_metadata(int64_t leaf) const;
  const std::byte* member_metadata(int rank) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep
