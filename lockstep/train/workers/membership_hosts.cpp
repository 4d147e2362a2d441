// Data for workers on other hosts, and results from them: see membership.h.
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <optional>
#include <set>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/train/workers/membership.h"

namespace lockstep {
namespace {

// Seconds without data, for a host's part of a validation and for the status of its workers.
constexpr double kCollectPatience = 20, kStatusPatience = 2;
// Seconds for a host to get a state, in all and for each byte; seconds that a stop waits for that.
constexpr double kBringPatience = 120, kBringSlowly = 1e-6, kStopPatience = 5;

}  // namespace

// Whether the member's host has the data that is the same for all workers. Requests it if not.
bool WorkerMembership::prepared(const Member& m) {
  const int number = host_of(m);
  if (number == 0) return true;
  if (!may_prepare) return false;
  detail::HostMemory& there = *pool.hosts();
  const uint64_t presence = there.status(number).presence;
  if (presence == 0) return false;
  Host& host = hosts[number];
  if (host.presence != presence) {
    host.presence = presence;
    host.missing = false;
    host.images = 0;
    const SharedImages& images = begin.images;
    for (const SharedPlace& place :
         {images.training, images.targets, images.validation, images.validation_targets}) {
      if (place.bytes > 0) host.images = there.push(number, place);
    }
    if (begin.evaluation.bytes > 0 && !host.evaluation_memory) {
      host.evaluation = ReservedPlace(memory, begin.evaluation.bytes);
      host.evaluation_memory = memory.map(*host.evaluation);
    }
  }
  return host.images == 0 || there.pushed(number, host.images);
}

void WorkerMembership::settle() {
  for (auto& [number, m] : members) {
    if (m.phase != Member::Phase::building || !m.built || !prepared(m)) continue;
    m.phase = Member::Phase::ready;
  }
}

BeginOrder WorkerMembership::begin_of(const Member& m) {
  BeginOrder own = begin;
  own.status = *m.status_place;
  const int host = host_of(m);
  if (host == 0) return own;
  if (begin.evaluation.bytes > 0) own.evaluation = *hosts.at(host).evaluation;
  pool.hosts()->watch(host, used_status(m));
  return own;
}

// Copies the published state to the hosts of the members that need it, before any member waits for
// the others. Workers that become ready meanwhile need it, too. Returns false if a host is lost.
bool WorkerMembership::bring_state(int64_t base, bool from_state) {
  struct Brought {
    uint64_t presence, push;
    TimeLimit limit;
    std::set<uint32_t> lost = {};  // members whose state came too late
  };
  std::map<int, Brought> brought;  // by host
  std::optional<TimeLimit> stopped;
  const double each =
      kBringPatience + kBringSlowly * static_cast<double>(begin.states[published].bytes);
  for (;;) {
    bool all = true, any_ready = false;
    std::vector<int> late;
    for (const auto& [number, m] : members) {
      any_ready = any_ready || m.phase != Member::Phase::building;
      const int host = host_of(m);
      const bool behind = from_state || m.phase == Member::Phase::ready || m.finished != base;
      if (host == 0 || m.phase == Member::Phase::building || !behind) continue;
      const uint64_t presence = pool.hosts()->status(host).presence;
      auto at = brought.find(host);
      if (at != brought.end() && !at->second.lost.empty()) {
        all = false;
        if (at->second.lost.count(number) > 0) continue;
        brought.erase(at);  // the replacement gets the state again
        at = brought.end();
      }
      if (at == brought.end()) {
        const uint64_t push = pool.hosts()->push(host, begin.states[published]);
        at = brought.emplace(host, Brought{presence, push, TimeLimit(each)}).first;
      }
      Brought& state = at->second;
      if (state.presence != presence) return false;
      if (pool.hosts()->pushed(host, state.push)) continue;
      all = false;
      if (state.limit.reached()) {
        late.push_back(host);
      }
    }
    for (const int host : late) {
      Brought& state = brought.at(host);
      for (const auto& [number, m] : members) {
        const bool behind = from_state || m.phase == Member::Phase::ready || m.finished != base;
        if (host_of(m) != host || m.phase == Member::Phase::building || !behind) continue;
        if (!state.lost.insert(number).second) continue;
        workers.kill(number, "did not get the group's state in time");
      }
    }
    // No event may be handled between this check and the forming of the group.
    if (all || !any_ready) return any_ready;
    if (!stopped && setup.stop && setup.stop()) stopped.emplace(kStopPatience);
    if (stopped && stopped->reached()) {
      throw Cancelled(
          "[training] the training was stopped while its state was copied to other hosts",
          "it can resume from its last checkpoint");
    }
    step(0.01);
  }
}

// The used part of the worker's status.
SharedPlace WorkerMembership::used_status(const Member& m) const {
  const int64_t most = std::max(setup.options.threads, setup.options.streams);
  const auto threads = static_cast<size_t>(std::min<int64_t>(most, TrainingWorkerStatus::kThreads));
  return {(*m.status_place).offset,
          offsetof(TrainingWorkerStatus, shards) + threads * sizeof(int64_t)};
}

// By order of ranks. Each host gets a part in proportion to its members.
void WorkerMembership::partition_batches(Evaluator& evaluator) {
  partitioned_batches.clear();
  std::map<int, int64_t> count;
  for (const uint32_t number : ranks) ++count[host_of(members.at(number))];
  const auto size = static_cast<int64_t>(ranks.size()), batches = evaluator.batches();
  std::memset(evaluation.get(), 0, begin.evaluation.bytes);
  Evaluator::partition(evaluation.get(), 0, 0);
  int64_t before = 0;
  for (const auto& [number, members_there] : count) {
    const int64_t first = batches * before / size;
    before += members_there;
    const int64_t end = batches * before / size;
    partitioned_batches[number] = {first, end};
    if (number == 0) {
      Evaluator::partition(evaluation.get(), first, end);
      continue;
    }
    const Host& host = hosts.at(number);
    std::memset(host.evaluation_memory.get(), 0, begin.evaluation.bytes);
    Evaluator::partition(host.evaluation_memory.get(), first, end);
    pool.hosts()->push(number, {(*host.evaluation).offset, Evaluator::kAreaHead});
  }
}

bool WorkerMembership::collect_batches(Evaluator& evaluator) {
  for (const auto& [number, batches] : partitioned_batches) {
    if (number == 0 || batches.first == batches.second) continue;
    const Host& host = hosts.at(number);
    if (!pool.hosts()->pull(number, host.presence, *host.evaluation, kCollectPatience))
      return false;
    evaluator.merge(evaluation.get(), host.evaluation_memory.get(), batches.first, batches.second,
                    begin.scores);
  }
  return true;
}

void WorkerMembership::call_off_batches() {
  for (const auto& [number, batches] : partitioned_batches) {
    if (number == 0) {
      Evaluator::call_off(evaluation.get());
      continue;
    }
    const Host& host = hosts.at(number);
    Evaluator::call_off(host.evaluation_memory.get());
    pool.hosts()->push(number, {(*host.evaluation).offset, Evaluator::kAreaHead});
  }
}

void WorkerMembership::collect_statuses() {
  for (const auto& [number, m] : members) {
    if (m.pid == 0 || host_of(m) == 0) continue;
    const int host = host_of(m);
    if (hosts.count(host) == 0) continue;
    pool.hosts()->pull(host, hosts.at(host).presence, used_status(m), kStatusPatience);
  }
}

int64_t WorkerMembership::batches_begun() const {
  int64_t begun = 0;
  for (const auto& [number, m] : members) begun += m.status().evaluated.load();
  return begun;
}

}  // namespace lockstep
