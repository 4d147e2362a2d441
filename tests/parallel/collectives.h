// Calls of the collectives of a group, whose results every member checks.
#pragma once

#include <cstddef>
#include <cstring>
#include <numeric>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/time_limit.h"
#include "lockstep/parallel/comm/group.h"

namespace lockstep::testing {

inline constexpr double kCollectiveLimit = 30;

inline std::byte byte_of(int from, int to, size_t at) {
  return static_cast<std::byte>(static_cast<size_t>(from * 31 + to * 7) + at * 13 + at / 251);
}

inline void require(bool holds) {
  if (!holds) throw InternalError("wrong bytes");
}

// Memory for the results of call number `times`, filled so that what a collective leaves unwritten
// is noticed.
inline std::vector<std::byte> poisoned(size_t bytes, int times) {
  return std::vector<std::byte>(bytes, times % 2 == 0 ? std::byte{0xff} : std::byte{0x7f});
}

inline void gather_bytes(Group& group, size_t most, int times) {
  const auto size = static_cast<size_t>(group.size()), me = static_cast<size_t>(group.rank());
  std::vector<size_t> counts(size);
  for (size_t r = 0; r < size; ++r) counts[r] = most > 0 && r % 2 == 1 ? most - 1 : most;
  std::vector<std::byte> mine(counts[me]);
  for (size_t i = 0; i < mine.size(); ++i) mine[i] = byte_of(group.rank(), times, i);
  auto all = poisoned(std::accumulate(counts.begin(), counts.end(), size_t{0}), times);
  group.all_gather(mine, counts, all, TimeLimit(kCollectiveLimit));
  size_t at = 0;
  for (int r = 0; r < group.size(); ++r) {
    for (size_t i = 0; i < counts[static_cast<size_t>(r)]; ++i) {
      require(all[at++] == byte_of(r, times, i));
    }
  }
}

// Member a sends `most` - a bytes of the chunk for member b.
inline void exchange_bytes(Group& group, size_t most, int times) {
  const auto length = [&](int a, int b) {
    const auto less = static_cast<size_t>(a + 2 * b);
    return most > less ? most - less : 0;
  };
  const int me = group.rank();
  std::vector<size_t> to, from;
  std::vector<std::byte> sent;
  for (int r = 0; r < group.size(); ++r) {
    to.push_back(length(me, r));
    from.push_back(length(r, me));
    for (size_t i = 0; i < length(me, r); ++i) sent.push_back(byte_of(me, r + times, i));
  }
  auto received = poisoned(std::accumulate(from.begin(), from.end(), size_t{0}), times);
  group.all_to_all(sent, to, received, from, TimeLimit(kCollectiveLimit));
  size_t at = 0;
  for (int r = 0; r < group.size(); ++r) {
    for (size_t i = 0; i < length(r, me); ++i) require(received[at++] == byte_of(r, me + times, i));
  }
}

inline void broadcast_bytes(Group& group, size_t most, int times) {
  const int root = times % group.size();
  auto data = poisoned(most, times);
  for (size_t i = 0; i < most && group.rank() == root; ++i) data[i] = byte_of(root, 5 + times, i);
  group.broadcast(data, root, TimeLimit(kCollectiveLimit));
  for (size_t i = 0; i < most; ++i) require(data[i] == byte_of(root, 5 + times, i));
}

// Every collective, three times, with counts that differ between members.
inline void move_bytes(Group& group, size_t most) {
  for (int times = 0; times < 3; ++times) {
    group.barrier(TimeLimit(kCollectiveLimit));
    gather_bytes(group, most, times);
    exchange_bytes(group, most, times);
    broadcast_bytes(group, most, times);
  }
}

}  // namespace lockstep::testing
