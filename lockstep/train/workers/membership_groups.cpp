// Groups of the present workers: see membership.h.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/parallel/reduce/group_sum.h"
#include "lockstep/train/workers/membership.h"

namespace lockstep {
namespace {

using Clock = TimeLimit::Clock;

// Seconds without data while a state is copied from another host.
constexpr double kPullPatience = 20;
// Seconds for hosts, and for devices, to connect. Devices connect before the first iteration.
constexpr double kHostsConnect = 10, kDevicesConnect = 80;

double load_of(const TrainingOptions& options, int slot) {
  return options.worker_load.empty() ? 1 : options.worker_load[static_cast<size_t>(slot)];
}

}  // namespace

// Brings the members of the present group to rest. Returns false if one was lost meanwhile.
bool WorkerMembership::await_rest() {
  // A member that connects to others does not receive orders. If nothing was received since the
  // group formed, no member computes.
  if (group && far() && granted == formed) end_group();
  if (group && broken) group->end();
  const auto resting = [&] {
    return std::all_of(members.begin(), members.end(), [](const auto& entry) {
      return entry.second.phase != Member::Phase::member || entry.second.halted;
    });
  };
  for (auto& [number, m] : members) {
    if (m.phase == Member::Phase::member && !m.halted) order(number, HaltOrder{generation});
  }
  // Members that compute come to rest at the next exchange. If nothing was ever computed, hosts may
  // be forming a group.
  const bool forming =
      pool.hosts() != nullptr && granted == received && this->limit() >= kReadyLimit;
  const double busy = forming ? kAnswerLimit : this->limit();
  for (const TimeLimit limit(kAnswerLimit + busy); !resting();) {
    step(std::min(0.1, limit.left()));
    if (!limit.reached()) continue;
    for (const auto& [number, m] : members) {
      if (m.phase == Member::Phase::member && !m.halted) workers.kill(number, "did not answer");
    }
    return false;
  }
  return true;
}

// A member writes its state to shared memory.
bool WorkerMembership::publish(uint32_t source) {
  const int other = 1 - published;
  publishing.reset();
  publisher = source;
  if (!order(source, PublishOrder{other})) {
    step(0.1);  // the worker was lost; handle that event
    return false;
  }
  for (const TimeLimit limit(kAnswerLimit + this->limit()); !publishing;) {
    step(std::min(0.1, limit.left()));
    if (members.count(source) == 0) return false;
    if (!limit.reached()) continue;
    workers.kill(source, "did not answer");
    return false;
  }
  // From another host the state is copied here. Losses meanwhile are handled.
  const int host = host_of(members.at(source));
  if (host != 0 &&
      !pool.hosts()->pull(host, hosts.at(host).presence, begin.states[other], kPullPatience)) {
    workers.kill(source, "did not publish its state");
    step(0.1);
    return false;
  }
  published = other;
  published_iteration = *publishing;
  digests.erase(digests.begin(), digests.lower_bound(published_iteration));
  return true;
}

bool WorkerMembership::form(int64_t base, bool from_state) {
  ++generation;
  ranks.clear();
  // Ordered by slot, so that each slot keeps its load.
  for (const auto& [number, m] : members) {
    if (m.phase != Member::Phase::building) ranks.push_back(number);
  }
  std::sort(ranks.begin(), ranks.end(),
            [&](uint32_t a, uint32_t b) { return members.at(a).slot < members.at(b).slot; });
  std::vector<double> loads;
  ClientGroupOptions of_group{.threads = setup.options.threads};
  for (const uint32_t number : ranks) {
    loads.push_back(load_of(setup.options, members.at(number).slot));
    of_group.names.push_back(name_of_worker(number));
    of_group.hosts.push_back(host_of(members.at(number)));
  }
  if (std::none_of(loads.begin(), loads.end(), [](double load) { return load > 0; })) {
    // All members with a load are missing at present, so idle members take their place.
    loads.assign(loads.size(), 1);
  }
  const GroupSumOptions sum{.count = static_cast<size_t>(ready->sum_count),
                            .most_leaves = ready->most_leaves,
                            .leaf_bytes = static_cast<size_t>(ready->leaf_bytes),
                            .member_bytes = static_cast<size_t>(ready->member_bytes)};
  of_group.window_bytes = GroupSum::window_bytes(sum, static_cast<int>(ranks.size()));
  group.emplace(pool, of_group);
  // The reporter must have the records that have not arrived.
  uint32_t reporter = ranks.front();
  for (const uint32_t number : ranks) {
    if (members.at(number).finished == base) reporter = number;
  }
  alone = deaths.suspects();
  bool all = true;
  for (size_t r = 0; r < ranks.size(); ++r) {
    Member& m = members.at(ranks[r]);
    if (m.phase == Member::Phase::ready) all = order(ranks[r], begin_of(m)) && all;
    const bool is_behind = from_state || m.finished != base;
    FormOrder f;
    f.generation = generation;
    group->describe(f, r);
    f.loads = loads;
    // The client ends hanging workers before this limit.
    f.limit = 4 * std::max(limit(), kAnswerLimit);
    f.next = base + 1;
    f.state = is_behind ? published : -1;
    f.known = std::min(received, base);
    f.reporter = ranks[r] == reporter;
    f.alone = alone;
    all = order(ranks[r], f) && all;
    const bool joined = m.phase == Member::Phase::ready;
    m.phase = Member::Phase::member;
    m.halted = false;
    m.finished = base;
    if (joined && setup.on_change) {
      setup.on_change({.worker = ranks[r],
                       .pid = m.pid,
                       .host = name_of_host(m),
                       .joined = true,
                       .how = {},
                       .iteration = base,
                       .members = static_cast<int64_t>(ranks.size())});
    }
  }
  granted = base;
  received = std::min(received, base);
  arrived.clear();
  broken = false;
  formed = base;
  const bool devices = !setup.devices.front().is_cpu() && ranks.size() > 1;
  const double meet = devices ? kDevicesConnect : std::max(0.0, kHostsConnect - limit());
  const std::chrono::duration<double> more(far() ? meet : 0);
  progress = Clock::now() + std::chrono::duration_cast<Clock::duration>(more);
  return all;
}

// At the beginning, waits for all workers except those that have other tasks for a long time; these
// join when they are free. Returns whether it waits for a worker.
bool WorkerMembership::await_first() {
  std::string busy;
  bool building = !free_slots.empty();
  for (const auto& [number, m] : members) {
    if (m.phase != Member::Phase::building) continue;
    if (m.pid != 0 || !workers.busy(number)) {
      building = true;
    } else {
      busy += fmt::format("{}{}", busy.empty() ? "" : ", ", m.slot);
    }
  }
  const bool stop = setup.stop && setup.stop();
  // Other hosts may take a long time to start.
  if (building && stop && pool.hosts() != nullptr) {
    throw Cancelled("[training] the training was stopped before its hosts were ready");
  }
  if (building && setup.interrupted && setup.interrupted()) {
    throw Cancelled("[training] the training was stopped before its workers were ready",
                    "no iteration had begun, so nothing is lost");
  }
  if (building) return true;
  if (busy.empty()) return false;
  if (!ready) {
    if (!stop) return true;
    throw Cancelled("[training] the training was stopped while the pool's workers had other tasks");
  }
  if (!patience) patience.emplace(kBusyLimit);
  if (!stop && !patience->reached()) return true;
  if (!std::exchange(busy_reported, true) && setup.notice) {
    setup.notice("the pool's workers " + busy +
                 " have other tasks: the training begins without them");
  }
  return false;
}

// Forms a group of all present workers.
void WorkerMembership::regroup() {
  for (;;) {
    if (!await_rest()) continue;
    int64_t base = -1;
    uint32_t source = 0;
    bool any_ready = false;
    for (const auto& [number, m] : members) {
      if (m.phase == Member::Phase::building) continue;
      any_ready = true;
      // Of equal members it prefers one of this machine, whose state need not be copied.
      const bool nearer =
          source != 0 && m.finished == base && host_of(m) == 0 && host_of(members.at(source)) != 0;
      if (m.phase == Member::Phase::member && (m.finished > base || nearer)) {
        base = m.finished;
        source = number;
      }
    }
    const bool elsewhere = !workers.own() || pool.hosts() != nullptr;
    if ((generation > 0 || pool.hosts() != nullptr) && !any_ready && elsewhere && setup.stop &&
        setup.stop()) {
      throw Cancelled("[training] the training was stopped while it had no workers",
                      "it can resume from its last checkpoint");
    }
    if ((generation == 0 && await_first()) || !any_ready) {
      step(0.1);
      continue;
    }
    const bool from_state = base < 0;  // no member has a state, so the published one is used
    if (from_state) {
      base = published_iteration;
    } else if (std::any_of(members.begin(), members.end(), [&](const auto& entry) {
                 return entry.second.phase != Member::Phase::building &&
                        (entry.second.phase == Member::Phase::ready ||
                         entry.second.finished != base);
               })) {
      if (!publish(source)) continue;
    }
    if (!bring_state(base, from_state) || !form(base, from_state)) continue;
    for (Loss& loss : losses) {
      loss.change.seconds = std::chrono::duration<double>(Clock::now() - loss.noticed).count();
      loss.change.members = static_cast<int64_t>(ranks.size());
      if (setup.on_change) setup.on_change(loss.change);
    }
    losses.clear();
    return;
  }
}

// There was no progress for too long: ends the members that the others wait for.
void WorkerMembership::end_hanging() {
  for (const uint32_t number : validating.value_or(std::set<uint32_t>{})) {
    workers.kill(number, "hung (it has not done its part of a validation)");
  }
  progress = Clock::now();
  if (validating) return;
  std::string where;
  const std::vector<size_t> missing = group->missing(where);
  for (const size_t rank : missing) workers.kill(ranks[rank], "hung (" + where + ")");
  if (!missing.empty()) return;
  if (far() && ranks.size() > 1) {
    // No member is late, so data was lost between hosts or devices. A member that does not come to
    // rest after that is hanging.
    note_failed_rendezvous("no data has arrived for too long");
    return end_group();
  }
  for (const uint32_t number : ranks) workers.kill(number, "hung");
}

}  // namespace lockstep
