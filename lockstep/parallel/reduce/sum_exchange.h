// The exchange of partial sums and slices between the members of a group, for the fixed tree.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "lockstep/base/numeric/index_range.h"
#include "lockstep/parallel/reduce/group_sum.h"

namespace lockstep {

// The slice of member `rank`: a range of the elements of an array of `count` elements, whole blocks
// of 1,024 except for the last.
IndexRange slice_of(size_t count, int rank, int size);

// What members exchange in a sum: partial sums, or operands from which each of them computes its
// update ranges of the sum (see GroupSum::operands()).
enum class SumWay : uint32_t { partial_sums, update_ranges };

// The steps of each sum: the caller writes partial sums, scatter() sends to every member its slice
// of all partial sums, each member adds up its slice, gather() sends all slices to all members.
// Or members write operands before scatter(), and update ranges of the sum before gather(). One
// thread at a time.
class SumExchange {
 public:
  // Through the windows of a LocalGroup.
  static std::unique_ptr<SumExchange> by_windows(LocalGroup& group, const GroupSumOptions& options);
  // By messages, for any group.
  static std::unique_ptr<SumExchange> by_messages(Group& group, const GroupSumOptions& options);
  static size_t window_bytes(const GroupSumOptions& options, int members);

  virtual ~SumExchange() = default;

  // Must be called before the functions below. Addresses stay valid until the next call.
  virtual void begin(std::shared_ptr<const SumSchedule> schedule) = 0;
  // Destination of this member's partial sum, all elements.
  virtual float* partial(size_t number) = 0;
  // This member's slice of any member's partial sum, from the slice's first element. The contents
  // are valid after scatter().
  virtual const float* operand(int rank, size_t number) const = 0;
  // Destination of this member's slice of the sum.
  virtual float* slice() = 0;
  // `leaf_metadata`: by leaf, `member_metadata`: by member, each entry rounded up to cache lines.
  // They contain this member's entries; the entries of the others are filled in.
  // Both functions throw like collectives. Throws InternalError if members chose different ways.
  virtual void scatter(SumWay way, std::span<std::byte> leaf_metadata,
                       std::span<std::byte> member_metadata, const TimeLimit& limit) = 0;
  // Returns the sum, which other members may read. It stays as it is until the next scatter().
  virtual float* gather(const TimeLimit& limit) = 0;

  // Memory that all members share. If they share none, these functions return null.
  // For the operands of sum number `sum`.
  virtual std::byte* operands(uint32_t sum) const {
    (void)sum;
    return nullptr;
  }
  // The sum, all elements, for writing after scatter().
  virtual float* shared_sum() const { return nullptr; }
  // Of each update range, the last sums in which it was claimed and published; initially 0.
  struct UpdateRangeMarks {
    std::atomic<uint32_t> claimed, published;
  };
  virtual UpdateRangeMarks* update_range_marks() const { return nullptr; }
};

}  // namespace lockstep
