#include "lockstep/parallel/comm/keyed_rendezvous.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

// Seconds between looks at the end of the group.
constexpr double kEntryLook = 0.02;

}  // namespace

std::map<int, Bytes> KeyedRendezvous::exchange(const std::map<int, Bytes>& own,
                                               const TimeLimit& limit) {
  std::vector<RendezvousEntry> entries;
  for (const auto& [rank, value] : own) entries.push_back({rank_, rank, value});
  send(entries);
  std::map<int, Bytes> theirs;
  for (const auto& [rank, value] : own) {
    while (came_.count(rank) == 0) {
      wait(std::min(kEntryLook, limit.left()));
      if (came_.count(rank) == 0 && limit.reached()) throw Timeout("[group] members are missing");
    }
    theirs[rank] = came_.at(rank);
  }
  return theirs;
}

void KeyedRendezvous::take(RendezvousEntry entry) {
  if (entry.to == rank_) came_[entry.from] = std::move(entry.value);
}

}  // namespace lockstep
