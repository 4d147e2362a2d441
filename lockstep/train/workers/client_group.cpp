#include "lockstep/train/workers/client_group.h"

#include <fmt/format.h>

#include <random>
#include <utility>

#include "lockstep/base/threads/cores.h"

namespace lockstep {
namespace {

// Seconds to wait for a host's report of its members.
constexpr double kPullPatience = 2;

std::string random_words() {
  std::random_device source;
  std::string text;
  for (int i = 0; i < 8; ++i) text += fmt::format("{:08x}", source());
  return text;
}

}  // namespace

ClientGroup::ClientGroup(detail::PoolCore& pool, const ClientGroupOptions& options)
    : pool_(pool), options_(options) {
  for (size_t rank = 0; rank < options.hosts.size(); ++rank) {
    const int host = options.hosts[rank];
    if (parts_.empty() || parts_.back().host != host) {
      parts_.push_back(
          {.host = host, .first = rank, .options = {.size = 0}, .place = {}, .memory = {}});
    }
    ++parts_.back().options.size;
    parts_.back().options.names.push_back(options.names[rank]);
  }
  const bool one = parts_.size() == 1;
  if (!one) secret_ = random_words();
  for (Part& part : parts_) {
    int cores = available_cores();
    if (part.host != 0) {
      const detail::HostStatus there = pool_.hosts()->status(part.host);
      cores = there.cores;
      part.presence = there.presence;
    }
    part.options.spin = options.threads * part.options.size <= cores;
    part.options.window_bytes = one ? options.window_bytes : 0;
    part.place = ReservedPlace(pool_.memory(), LocalGroup::bytes(part.options));
    part.memory = pool_.memory().map(*part.place);
  }
}

void ClientGroup::describe(FormOrder& order, size_t rank) const {
  size_t own = 0;
  while (own + 1 < parts_.size() && parts_[own + 1].first <= rank) ++own;
  const Part& part = parts_[own];
  order.memory = *part.place;
  order.window_bytes = part.options.window_bytes;
  order.spin = part.options.spin;
  order.rank = static_cast<int32_t>(rank);
  order.names = options_.names;
  order.members.clear();
  for (const Part& p : parts_) order.members.push_back(p.options.size);
  order.host = static_cast<int32_t>(own);
  order.secret = secret_;
  if (parts_.size() > 1) order.address = pool_.hosts()->status(part.host).address;
}

std::vector<size_t> ClientGroup::first_ranks() const {
  std::vector<size_t> ranks;
  for (const Part& part : parts_) ranks.push_back(part.first);
  return ranks;
}

void ClientGroup::end() {
  if (std::exchange(ended_, true)) return;
  for (const Part& part : parts_) {
    if (part.host == 0) {
      LocalGroup::abort(part.memory);
    } else {
      pool_.hosts()->end_group(part.host, *part.place);
    }
  }
}

std::vector<size_t> ClientGroup::missing(std::string& where) {
  std::vector<size_t> ranks;
  std::vector<const Part*> absent;  // hosts whose members are all missing
  bool awaited = false;             // a host waits for other hosts
  for (const Part& part : parts_) {
    // A host that does not answer is detected as silent elsewhere, shortly after.
    const SharedPlace head{(*part.place).offset, LocalGroup::head_bytes(part.options)};
    if (part.host != 0 && !pool_.hosts()->pull(part.host, part.presence, head, kPullPatience))
      continue;
    // The first member of a host may keep its host waiting for other hosts. It is not the cause
    // then.
    const bool abroad = LocalGroup::note(part.memory).load() != 0;
    awaited = awaited || abroad;
    const int excused = abroad ? 0 : -1;
    const size_t before = ranks.size();
    for (const int rank : LocalGroup::missing(part.memory, part.options)) {
      if (rank != excused) ranks.push_back(part.first + static_cast<size_t>(rank));
    }
    if (ranks.size() > before) {
      const std::string here = LocalGroup::describe_missing(part.memory, part.options, excused);
      where += (where.empty() ? "" : "; ") + here;
    } else if (!abroad) {
      absent.push_back(&part);
    }
  }
  if (!ranks.empty() || !awaited) return ranks;
  for (const Part* part : absent) {
    for (size_t i = 0; i < part->options.names.size(); ++i) {
      ranks.push_back(part->first + i);
      where += (where.empty() ? "" : ", ") + part->options.names[i];
    }
  }
  if (!where.empty()) {
    where += ranks.size() == 1 ? " has" : " have";
    where += " not arrived where other hosts wait";
  }
  return ranks;
}

}  // namespace lockstep
