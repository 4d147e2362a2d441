#include "lockstep/train/workers/client_group.h"

#include <algorithm>
#include <utility>

#include "lockstep/base/numeric/random_hex.h"
#include "lockstep/base/threads/thread_pool.h"
#include "lockstep/parallel/comm/host_group.h"
#include "lockstep/parallel/comm/two_steps.h"
#include "lockstep/train/options/options.h"

namespace lockstep {
namespace {

// Seconds to wait for a host's report of its members.
constexpr double kPullPatience = 2;

}  // namespace

ClientGroup::ClientGroup(detail::PoolCore& pool, const ClientGroupOptions& options)
    : pool_(pool), options_(options) {
  for (size_t rank = 0; rank < options.hosts.size(); ++rank) {
    const int host = options.hosts[rank];
    if (parts_.empty() || parts_.back().host != host) {
      parts_.push_back(
          {.host = host, .first = rank, .options = {.size = 0}, .range = {}, .memory = {}});
    }
    ++parts_.back().options.size;
    parts_.back().options.names.push_back(name_of_worker(options.workers[rank]));
  }
  const bool one = parts_.size() == 1;
  if (!one) secret_ = random_hex(8);
  for (Part& part : parts_) {
    int cores = available_cores();
    if (part.host != 0) {
      const detail::HostStatus there = pool_.hosts()->status(part.host);
      cores = there.cores;
      part.presence = there.presence;
      part.address = there.address;
    }
    part.options.spin = options.threads * part.options.size <= cores;
    part.options.window_bytes = one ? options.window_bytes : 0;
    part.range = ReservedRange(pool_.memory(), LocalGroup::bytes(part.options));
    if (part.host != 0) pool_.hosts()->belongs_to(part.host, *part.range);
    part.memory = pool_.memory().map(*part.range);
  }
}

void ClientGroup::describe(FormOrder& order, size_t rank) const {
  const auto after = std::upper_bound(parts_.begin(), parts_.end(), rank,
                                      [](size_t r, const Part& p) { return r < p.first; });
  const auto own = static_cast<size_t>(after - parts_.begin()) - 1;
  const Part& part = parts_[own];
  order.memory = *part.range;
  order.window_bytes = part.options.window_bytes;
  order.spin = part.options.spin;
  order.rank = static_cast<int32_t>(rank);
  order.host = static_cast<int32_t>(own);
  const auto first = options_.workers.begin() + static_cast<std::ptrdiff_t>(part.first);
  order.workers.assign(first, first + part.options.size);
  order.neighbors.clear();
  if (parts_.size() == 1) return;
  if (rank == part.first) {
    const TwoSteps steps(static_cast<int>(parts_.size()), HostGroupOptions{}.most_direct);
    for (const int host : steps.neighbors(order.host)) {
      order.neighbors.push_back(options_.workers[parts_[static_cast<size_t>(host)].first]);
    }
  }
  order.address = part.host == 0 ? pool_.hosts()->status(0).address : part.address;
}

void ClientGroup::describe(GroupOfWorkers& group) const {
  for (const Part& part : parts_) group.members.push_back(part.options.size);
  group.secret = secret_;
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
      pool_.hosts()->end_group(part.host, *part.range);
    }
  }
}

std::vector<size_t> ClientGroup::missing(std::string& where) {
  std::vector<size_t> ranks;
  std::vector<const Part*> absent;  // hosts whose members are all missing
  bool awaited = false;             // a host waits for other hosts
  // A host that does not answer is detected as silent elsewhere, shortly after.
  std::vector<detail::HostMemory::Pull> pulls;
  for (const Part& part : parts_) {
    if (part.host == 0) continue;
    pulls.push_back(
        {part.host, part.presence, {(*part.range).offset, LocalGroup::head_bytes(part.options)}});
  }
  std::vector<bool> answered;
  if (!pulls.empty()) answered = pool_.hosts()->pull_each(pulls, kPullPatience);
  auto answer = answered.begin();
  for (const Part& part : parts_) {
    if (part.host != 0 && !*answer++) continue;
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
