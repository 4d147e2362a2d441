#include "lockstep/parallel/comm/group.h"

#include <numeric>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

void require(bool fits, const char* what) {
  if (!fits) {
    throw InvalidArgument("[group] " + std::string(what) + ": the sizes do not fit together");
  }
}

}  // namespace

size_t Group::total(std::span<const size_t> counts) {
  return std::accumulate(counts.begin(), counts.end(), size_t{0});
}

std::string Group::names_of(const std::vector<int>& ranks, const std::vector<std::string>& names) {
  std::string text;
  for (const int rank : ranks) {
    const auto r = static_cast<size_t>(rank);
    text +=
        (text.empty() ? "" : ", ") + (r < names.size() ? names[r] : "rank " + std::to_string(rank));
  }
  return text;
}

void Group::check_member(int rank, int size) {
  if (size >= 1 && rank >= 0 && rank < size) return;
  throw InvalidArgument("[group] rank " + std::to_string(rank) + " of " + std::to_string(size));
}

void Group::all_gather(std::span<const std::byte> mine, std::span<const size_t> counts,
                       std::span<std::byte> all, const TimeLimit& limit) {
  const auto own = static_cast<size_t>(rank());
  require(counts.size() == static_cast<size_t>(size()) && mine.size() == counts[own] &&
              all.size() == total(counts),
          "all_gather");
  gather(mine, counts, all, limit);
}

void Group::all_to_all(std::span<const std::byte> mine, std::span<const size_t> to,
                       std::span<std::byte> all, std::span<const size_t> from,
                       const TimeLimit& limit) {
  const auto own = static_cast<size_t>(rank()), members = static_cast<size_t>(size());
  require(to.size() == members && from.size() == members && mine.size() == total(to) &&
              all.size() == total(from) && to[own] == from[own],
          "all_to_all");
  exchange(mine, to, all, from, limit);
}

std::vector<Bytes> Group::gather_each(std::span<const std::byte> mine, const TimeLimit& limit) {
  const auto n = static_cast<size_t>(size());
  const size_t own = mine.size();
  std::vector<size_t> counts(n);
  all_gather(std::as_bytes(std::span(&own, 1)), std::vector<size_t>(n, sizeof own),
             std::as_writable_bytes(std::span(counts)), limit);
  Bytes all(total(counts));
  all_gather(mine, counts, all, limit);
  std::vector<Bytes> parts;
  auto from = all.begin();
  for (const size_t count : counts) {
    parts.emplace_back(from, from + static_cast<std::ptrdiff_t>(count));
    from += static_cast<std::ptrdiff_t>(count);
  }
  return parts;
}

void Group::broadcast(std::span<std::byte> data, int root, const TimeLimit& limit) {
  check_member(root, size());
  send_from(data, root, limit);
}

}  // namespace lockstep
