// How the members of a group give each other what the fixed tree's upper part adds.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "lockstep/parallel/comm/group_sum.h"

namespace lockstep {

// Elements of the array.
struct Slice {
  size_t first = 0, count = 0;
};

// Member `rank`'s of an array of `count`: whole blocks of 1,024, but for the last.
Slice slice_of(size_t count, int rank, int size);

// Who has which leaves, and how many partial sums come of them.
struct SumDeal {
  std::vector<LeafRun> runs;
  std::vector<size_t> partials;
};

// One sum after another: partial sums are written, scatter() gives every member its slice of all of
// them, each finishes that, gather() gives everyone all slices. One thread at a time.
class SumExchange {
 public:
  // Through windows of memory that all members see.
  static std::unique_ptr<SumExchange> by_windows(LocalGroup& group, const GroupSumOptions& options);
  // By messages, for any group.
  static std::unique_ptr<SumExchange> by_messages(Group& group, const GroupSumOptions& options);
  static size_t window_bytes(const GroupSumOptions& options, int members);

  virtual ~SumExchange() = default;

  // Before anything is asked for. Addresses stay until it is called again.
  virtual void begin(const SumDeal& deal) = 0;
  // Where this member's partial sum goes, all elements.
  virtual float* partial(size_t number) = 0;
  // Anybody's, but only this member's slice: its first element; to be read after scatter().
  virtual const float* operand(int rank, size_t number) const = 0;
  // Where this member's slice of the sum goes.
  virtual float* slice() = 0;
  // `said`: by leaf, `said_by`: by member, each rounded up to cache lines; this member's own are
  // there, the others' come. Throws as collectives do; so does gather().
  virtual void scatter(std::span<std::byte> said, std::span<std::byte> said_by,
                       const TimeLimit& limit) = 0;
  virtual void gather(float* result, const TimeLimit& limit) = 0;
};

}  // namespace lockstep
