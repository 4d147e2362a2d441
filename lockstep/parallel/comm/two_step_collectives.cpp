#include "lockstep/parallel/comm/two_step_collectives.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

// Bytes that a member may pass on for another one, so that no size can overflow.
constexpr size_t kMostPassing = size_t{1} << 40;

const MemberBytes& of_rank(const std::vector<MemberBytes>& all, int rank) {
  return all[static_cast<size_t>(rank)];
}

// Adds a part of one buffer to the end of another.
void append(std::vector<std::byte>& to, std::span<const std::byte> from, size_t offset,
            size_t bytes) {
  const auto part = from.subspan(offset, bytes);
  to.insert(to.end(), part.begin(), part.end());
}

void copy_first(const std::vector<std::byte>& from, size_t bytes, std::vector<std::byte>& to) {
  std::copy_n(from.begin(), static_cast<std::ptrdiff_t>(bytes), to.begin());
}

}  // namespace

std::vector<MemberBytes> bytes_by_rank(std::span<const size_t> counts) {
  std::vector<MemberBytes> by_rank;
  size_t offset = 0;
  for (const size_t count : counts) {
    by_rank.push_back({static_cast<int>(by_rank.size()), offset, count});
    offset += count;
  }
  return by_rank;
}

TwoStepCollectives::TwoStepCollectives(const TwoSteps& steps, int rank, Move move)
    : steps_(steps), rank_(rank), move_(std::move(move)) {}

// A member on the way of bytes learns their sizes first. `sizes`: of those that this member sends,
// by both distances. Returns the sizes of those that it will pass on, by the distance that they
// have come and the one that they still go.
std::vector<uint64_t> TwoStepCollectives::sizes_to_pass(const std::vector<uint64_t>& sizes,
                                                        const TimeLimit& limit) const {
  const auto row = static_cast<size_t>(steps_.multiples());
  std::vector<uint64_t> passing(sizes.size(), 0);
  std::vector<MemberBytes> to, from;
  for (int near = 1; near < steps_.stride(); ++near) {
    const size_t offset = index(near, 0) * sizeof(uint64_t), bytes = row * sizeof(uint64_t);
    to.push_back({nearer(near), offset, bytes});
    from.push_back({nearer(-near), offset, bytes});
  }
  std::copy_n(sizes.begin(), row, passing.begin());
  move_(std::as_bytes(std::span(sizes)), to, std::as_writable_bytes(std::span(passing)), from, 0,
        limit);
  for (size_t first = 0; first < passing.size(); first += row) {
    size_t bytes = 0;
    for (const uint64_t each : std::span(passing).subspan(first, row)) {
      bytes += std::min<uint64_t>(each, kMostPassing + 1);
      if (bytes > kMostPassing) throw Error("[group] a member announced too many bytes");
    }
  }
  return passing;
}

// In each message the parts are ordered by the other step's distance.
void TwoStepCollectives::exchange(std::span<const std::byte> mine,
                                  const std::vector<MemberBytes>& to, std::span<std::byte> all,
                                  const std::vector<MemberBytes>& from,
                                  const TimeLimit& limit) const {
  const int stride = steps_.stride(), multiples = steps_.multiples();
  // Where the bytes come from that arrive after both steps.
  const auto source = [&](int near, int multiple) {
    return of_rank(from, steps_.at(rank_, -near - multiple * stride));
  };
  // The first step, by its distance.
  std::vector<uint64_t> sizes(index(stride, 0), 0);
  std::vector<std::byte> packed;
  std::vector<MemberBytes> give, take;
  for (int near = 0; near < stride; ++near) {
    MemberBytes message{nearer(near), packed.size(), 0};
    for (int multiple = 0; multiple < multiples && steps_.has(near, multiple); ++multiple) {
      if (near + multiple == 0) continue;  // this member itself
      const MemberBytes& part = of_rank(to, steps_.at(nearer(near), multiple * stride));
      sizes[index(near, multiple)] = part.bytes;
      append(packed, mine, part.offset, part.bytes);
    }
    message.bytes = packed.size() - message.offset;
    give.push_back(message);
  }
  const std::vector<uint64_t> passing = sizes_to_pass(sizes, limit);
  size_t passed = 0;
  for (int near = 0; near < stride; ++near) {
    MemberBytes message{nearer(-near), passed, 0};
    for (int multiple = 0; multiple < multiples; ++multiple) {
      message.bytes += passing[index(near, multiple)];
    }
    passed += message.bytes;
    take.push_back(message);
  }
  std::vector<std::byte> brought(passed);
  copy_first(packed, give[0].bytes, brought);
  give[0].bytes = take[0].bytes = 0;
  move_(packed, give, brought, take, 1, limit);
  // The second step, by its distance.
  std::vector<size_t> next;  // part of each message of the first step
  for (const MemberBytes& message : take) next.push_back(message.offset);
  std::vector<std::byte> sorted;
  sorted.reserve(passed);
  give.clear();
  take.clear();
  size_t arriving = 0;
  for (int multiple = 0; multiple < multiples; ++multiple) {
    MemberBytes pass{further(multiple), sorted.size(), 0};
    MemberBytes last{further(-multiple), arriving, 0};
    for (int near = 0; near < stride && steps_.has(near, multiple); ++near) {
      const size_t bytes = passing[index(near, multiple)];
      append(sorted, brought, next[static_cast<size_t>(near)], bytes);
      next[static_cast<size_t>(near)] += bytes;
      if (near + multiple > 0) last.bytes += source(near, multiple).bytes;
    }
    pass.bytes = sorted.size() - pass.offset;
    arriving += last.bytes;
    give.push_back(pass);
    take.push_back(last);
  }
  if (give[0].bytes != take[0].bytes) {
    throw InvalidArgument("[group] the sizes of an exchange differ between members");
  }
  std::vector<std::byte> arrived(arriving);
  copy_first(sorted, give[0].bytes, arrived);
  give[0].bytes = take[0].bytes = 0;
  move_(sorted, give, arrived, take, 2, limit);
  size_t read = 0;
  for (int multiple = 0; multiple < multiples; ++multiple) {
    for (int near = 0; near < stride && steps_.has(near, multiple); ++near) {
      if (near + multiple == 0) continue;
      const MemberBytes& member = source(near, multiple);
      std::copy_n(arrived.begin() + static_cast<std::ptrdiff_t>(read), member.bytes,
                  all.begin() + static_cast<std::ptrdiff_t>(member.offset));
      read += member.bytes;
    }
  }
}

// In the first step each member gets the bytes of the members shortly before it, and in the second
// one it passes them on.
void TwoStepCollectives::gather(std::span<const std::byte> mine, std::span<const size_t> counts,
                                std::span<std::byte> all, const TimeLimit& limit) const {
  const std::vector<MemberBytes> by_rank = bytes_by_rank(counts);
  const int stride = steps_.stride();
  if (!mine.empty()) {
    std::memcpy(all.data() + of_rank(by_rank, rank_).offset, mine.data(), mine.size());
  }
  std::vector<MemberBytes> give, take;
  for (int near = 1; near < stride; ++near) {
    give.push_back({nearer(near), 0, mine.size()});
    take.push_back(of_rank(by_rank, nearer(-near)));
  }
  move_(mine, give, all, take, 0, limit);
  // Every message of the second step is the beginning of the same bytes.
  std::vector<std::byte> packed;
  for (int near = 0; near < stride && steps_.has(near, 1); ++near) {
    const MemberBytes& part = of_rank(by_rank, nearer(-near));
    append(packed, all, part.offset, part.bytes);
  }
  give.clear();
  take.clear();
  size_t arriving = 0;
  for (int multiple = 1; multiple < steps_.multiples(); ++multiple) {
    MemberBytes pass{further(multiple), 0, 0}, last{further(-multiple), arriving, 0};
    for (int near = 0; near < stride && steps_.has(near, multiple); ++near) {
      pass.bytes += of_rank(by_rank, nearer(-near)).bytes;
      last.bytes += of_rank(by_rank, steps_.at(rank_, -near - multiple * stride)).bytes;
    }
    arriving += last.bytes;
    give.push_back(pass);
    take.push_back(last);
  }
  std::vector<std::byte> arrived(arriving);
  move_(packed, give, arrived, take, 1, limit);
  size_t read = 0;
  for (int multiple = 1; multiple < steps_.multiples(); ++multiple) {
    for (int near = 0; near < stride && steps_.has(near, multiple); ++near) {
      const MemberBytes& to = of_rank(by_rank, steps_.at(rank_, -near - multiple * stride));
      std::copy_n(arrived.begin() + static_cast<std::ptrdiff_t>(read), to.bytes,
                  all.begin() + static_cast<std::ptrdiff_t>(to.offset));
      read += to.bytes;
    }
  }
}

void TwoStepCollectives::send_from(std::span<std::byte> data, int root,
                                   const TimeLimit& limit) const {
  const int distance = steps_.at(rank_, -root);  // from the root
  const int near = distance % steps_.stride(), multiple = distance / steps_.stride();
  std::vector<MemberBytes> give, take;
  if (distance == 0) {
    for (int step = 1; step < steps_.stride(); ++step) {
      give.push_back({nearer(step), 0, data.size()});
    }
  } else if (multiple == 0) {
    take.push_back({root, 0, data.size()});
  }
  move_(data, give, data, take, 0, limit);
  give.clear();
  take.clear();
  for (int step = 1; multiple == 0 && step < steps_.multiples() && steps_.has(near, step); ++step) {
    give.push_back({further(step), 0, data.size()});
  }
  if (multiple > 0) take.push_back({steps_.at(root, near), 0, data.size()});
  move_(data, give, data, take, 1, limit);
}

}  // namespace lockstep
