#include "lockstep/parallel/reduce/sum_exchange.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/base/numeric/alignment.h"
#include "lockstep/base/numeric/index_range.h"

namespace lockstep {
namespace {

constexpr size_t kBlock = 1024;  // floats; slices consist of whole blocks

// A range within a tree over n leaves has at most two partial sums at each level.
size_t most_partials(int64_t leaves) {
  return 2 * static_cast<size_t>(std::bit_width(static_cast<uint64_t>(leaves))) + 1;
}

// The metadata of a range's leaves.
IndexRange words_of(const IndexRange& range, size_t width) {
  const auto bytes = static_cast<int64_t>(width);
  return {range.first * bytes, range.count * bytes};
}

size_t float_bytes(const IndexRange& elements) {
  return static_cast<size_t>(elements.count) * sizeof(float);
}

class Windows final : public SumExchange {
 public:
  Windows(LocalGroup& group, const GroupSumOptions& options)
      : group_(group),
        options_(options),
        member_offset_(round_up(options.leaf_metadata_bytes) *
                       static_cast<size_t>(options.most_leaves)),
        own_(slice_of(options.count, group.rank(), group.size())) {}

  void begin(std::shared_ptr<const SumSchedule> schedule) override {
    schedule_ = std::move(schedule);
  }

  float* partial(size_t number) override { return partial_of(group_.rank(), number); }

  const float* operand(int rank, size_t number) const override {
    return partial_of(rank, number) + own_.first;
  }

  float* slice() override { return sum() + own_.first; }

  void scatter(SumWay way, std::span<std::byte> leaf_metadata, std::span<std::byte> member_metadata,
               const TimeLimit& limit) override {
    const size_t width = round_up(options_.leaf_metadata_bytes),
                 by = round_up(options_.member_metadata_bytes);
    const auto rank = static_cast<size_t>(group_.rank());
    way_of(group_.rank()) = way;
    const IndexRange own = words_of(schedule_->ranges[rank], width);
    std::byte* const window = group_.window(group_.rank());
    if (own.count > 0) std::memcpy(window + own.first, leaf_metadata.data() + own.first, own.count);
    if (by > 0) std::memcpy(window + member_offset_, member_metadata.data() + rank * by, by);
    group_.barrier(limit);
    for (size_t r = 0; r < schedule_->ranges.size(); ++r) {
      if (r == rank) continue;
      if (way_of(static_cast<int>(r)) != way) {
        throw InternalError("[group] members compute a sum in different ways");
      }
      const std::byte* const theirs = group_.window(static_cast<int>(r));
      const IndexRange w = words_of(schedule_->ranges[r], width);
      if (w.count > 0) std::memcpy(leaf_metadata.data() + w.first, theirs + w.first, w.count);
      if (by > 0) std::memcpy(member_metadata.data() + r * by, theirs + member_offset_, by);
    }
  }

  // All members write to one array, which is not copied. A member writes its slice after scatter(),
  // when the others have finished reading the sum before.
  float* gather(const TimeLimit& limit) override {
    group_.barrier(limit);
    return sum();
  }

  // Two slots: a member may write its operands of a sum while another one still computes update
  // ranges of the sum before, if members were lost.
  std::byte* operands(uint32_t sum) const override {
    if (options_.operand_bytes == 0) return nullptr;
    return after_sum() + sum % 2 * round_up(options_.operand_bytes);
  }
  float* shared_sum() const override { return sum(); }
  UpdateRangeMarks* update_range_marks() const override {
    return reinterpret_cast<UpdateRangeMarks*>(after_sum() + 2 * round_up(options_.operand_bytes));
  }

 private:
  // Layout of a window: metadata of leaves and of the member, the way, partial sums; in that of
  // member 0 also the sum, two slots for operands, and the marks of the update ranges.
  SumWay& way_of(int rank) const {
    return *reinterpret_cast<SumWay*>(group_.window(rank) + member_offset_ +
                                      round_up(options_.member_metadata_bytes));
  }
  float* partial_of(int rank, size_t number) const {
    return reinterpret_cast<float*>(
        group_.window(rank) + member_offset_ + round_up(options_.member_metadata_bytes) +
        round_up(sizeof(SumWay)) + number * round_up(options_.count * sizeof(float)));
  }
  float* sum() const { return partial_of(0, most_partials(options_.most_leaves)); }
  std::byte* after_sum() const {
    return reinterpret_cast<std::byte*>(partial_of(0, most_partials(options_.most_leaves) + 1));
  }

  LocalGroup& group_;
  const GroupSumOptions options_;
  const size_t member_offset_;
  const IndexRange own_;
  std::shared_ptr<const SumSchedule> schedule_;
};

class Messages final : public SumExchange {
 public:
  Messages(Group& group, const GroupSumOptions& options)
      : group_(group),
        options_(options),
        width_(round_up(options.count * sizeof(float)) / sizeof(float)),
        own_(slice_of(options.count, group.rank(), group.size())) {}

  void begin(std::shared_ptr<const SumSchedule> schedule) override {
    schedule_ = std::move(schedule);
    const auto n = schedule_->ranges.size();
    partials_.resize(width_ * schedule_->subtrees[rank()].size());
    slice_.resize(static_cast<size_t>(own_.count));
    to_.assign(n, 0);
    from_.assign(n, 0);
    firsts_.assign(n, 0);
    slices_.assign(n, 0);
    size_t sent = 0, received = 0;
    for (size_t r = 0; r < n; ++r) {
      firsts_[r] = received;
      to_[r] = partial_bytes(rank(), theirs(r)) + words_bytes(rank());
      from_[r] = partial_bytes(r, own_) + words_bytes(r);
      slices_[r] = float_bytes(theirs(r));
      sent += to_[r];
      received += from_[r];
    }
    sent_.resize(sent);
    received_.resize(received);
  }

  float* partial(size_t number) override { return partials_.data() + number * width_; }

  const float* operand(int member, size_t number) const override {
    return reinterpret_cast<const float*>(received_.data() + firsts_[static_cast<size_t>(member)]) +
           number * static_cast<size_t>(own_.count);
  }

  float* slice() override { return slice_.data(); }

  // Sends to each member its slice of all local partial sums, followed by the metadata of the local
  // leaves and of this member.
  void scatter(SumWay, std::span<std::byte> leaf_metadata, std::span<std::byte> member_metadata,
               const TimeLimit& limit) override {
    const size_t width = round_up(options_.leaf_metadata_bytes),
                 by = round_up(options_.member_metadata_bytes);
    const IndexRange own = words_of(schedule_->ranges[rank()], width);
    std::byte* to = sent_.data();
    for (size_t r = 0; r < schedule_->ranges.size(); ++r) {
      const IndexRange s = theirs(r);
      for (size_t i = 0; i < schedule_->subtrees[rank()].size(); ++i) {
        to = put(to, partial(i) + s.first, float_bytes(s));
      }
      to = put(to, leaf_metadata.data() + own.first, own.count);
      to = put(to, member_metadata.data() + rank() * by, by);
    }
    group_.all_to_all(sent_, to_, received_, from_, limit);
    for (size_t r = 0; r < schedule_->ranges.size(); ++r) {
      const std::byte* const from = received_.data() + firsts_[r] + partial_bytes(r, own_);
      const IndexRange w = words_of(schedule_->ranges[r], width);
      put(leaf_metadata.data() + w.first, from, w.count);
      put(member_metadata.data() + r * by, from + w.count, by);
    }
  }

  float* gather(const TimeLimit& limit) override {
    sum_.resize(options_.count);
    group_.all_gather(std::as_bytes(std::span(slice_)), slices_,
                      std::as_writable_bytes(std::span(sum_)), limit);
    return sum_.data();
  }

 private:
  size_t rank() const { return static_cast<size_t>(group_.rank()); }
  IndexRange theirs(size_t member) const {
    return slice_of(options_.count, static_cast<int>(member), group_.size());
  }
  size_t partial_bytes(size_t member, const IndexRange& of) const {
    return schedule_->subtrees[member].size() * float_bytes(of);
  }
  size_t words_bytes(size_t member) const {
    return words_of(schedule_->ranges[member], round_up(options_.leaf_metadata_bytes)).count +
           round_up(options_.member_metadata_bytes);
  }
  static std::byte* put(std::byte* to, const void* from, size_t bytes) {
    if (bytes > 0) std::memcpy(to, from, bytes);
    return to + bytes;
  }

  Group& group_;
  const GroupSumOptions options_;
  const size_t width_;  // distance between partial sums, in floats
  const IndexRange own_;
  std::shared_ptr<const SumSchedule> schedule_;
  std::vector<float> partials_, slice_, sum_;
  std::vector<std::byte> sent_, received_;
  // Bytes to each member, bytes from it, their offsets, and the size of each member's slice.
  std::vector<size_t> to_, from_, firsts_, slices_;
};

}  // namespace

IndexRange slice_of(size_t count, int rank, int size) {
  const size_t blocks = (count + kBlock - 1) / kBlock;
  const auto r = static_cast<size_t>(rank), n = static_cast<size_t>(size);
  const size_t first = std::min(count, blocks * r / n * kBlock);
  const size_t end = std::min(count, blocks * (r + 1) / n * kBlock);
  return {static_cast<int64_t>(first), static_cast<int64_t>(end - first)};
}

std::unique_ptr<SumExchange> SumExchange::by_windows(LocalGroup& group,
                                                     const GroupSumOptions& options) {
  const size_t needed = window_bytes(options, group.size());
  if (group.window_bytes() < needed) {
    throw InvalidArgument("[GroupSum] the group has windows of " +
                          std::to_string(group.window_bytes()) + " bytes, the sum needs " +
                          std::to_string(needed) + " (see GroupSum::window_bytes())");
  }
  return std::make_unique<Windows>(group, options);
}

std::unique_ptr<SumExchange> SumExchange::by_messages(Group& group,
                                                      const GroupSumOptions& options) {
  return std::make_unique<Messages>(group, options);
}

size_t SumExchange::window_bytes(const GroupSumOptions& o, int members) {
  if (members == 1) return 0;
  return round_up(o.leaf_metadata_bytes) * static_cast<size_t>(o.most_leaves) +
         round_up(o.member_metadata_bytes) + round_up(sizeof(SumWay)) +
         (most_partials(o.most_leaves) + 1) * round_up(o.count * sizeof(float)) +
         2 * round_up(o.operand_bytes) +
         round_up(static_cast<size_t>(o.update_ranges) * sizeof(UpdateRangeMarks));
}

}  // namespace lockstep
