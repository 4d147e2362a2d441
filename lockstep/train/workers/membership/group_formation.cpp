#include "lockstep/train/workers/membership/group_formation.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/parallel/reduce/group_sum.h"
#include "lockstep/train/options/options.h"

namespace lockstep {
namespace {

using Phase = WorkerMember::Phase;

// Seconds for a worker to answer between iterations.
constexpr double kAnswerLimit = 10;
// Seconds without data while a state is copied from another host.
constexpr double kStatePatience = 20;
// Seconds for a host to get a state, in all and for each byte; seconds that a stop waits for that.
constexpr double kBringPatience = 120, kBringSlowly = 1e-6, kStopPatience = 5;
// Seconds for hosts, and for devices, to connect. Devices connect before the first iteration.
constexpr double kHostsConnect = 10, kDevicesConnect = 80;

double load_of(const TrainingOptions& options, int slot) {
  return options.workers.load.empty() ? 1 : options.workers.load[static_cast<size_t>(slot)];
}

}  // namespace

// Halts the members of the current group. Returns false if one was lost meanwhile.
bool GroupFormation::await_halt() {
  WorkerMembership& membership = parts_.membership;
  const IterationRecords& records = parts_.records;
  // A member that connects to others does not receive orders. If nothing was received since the
  // group formed, no member computes.
  if (parts_.group.far() && parts_.group.idle(records.granted())) parts_.group.end();
  const auto resting = [&] {
    return std::all_of(membership.members().begin(), membership.members().end(),
                       [](const auto& entry) {
                         return entry.second.phase != Phase::member || entry.second.halted;
                       });
  };
  for (auto& [number, m] : membership.members()) {
    if (m.phase != Phase::member || m.halted) continue;
    membership.order(number, HaltOrder{parts_.group.generation()});
  }
  // Members that compute halt at the next exchange. If nothing was ever computed, hosts may
  // be forming a group.
  const bool forming = membership.pool().hosts() != nullptr &&
                       records.granted() == records.received() &&
                       membership.limit() >= WorkerMember::kReadyLimit;
  const double busy = forming ? kAnswerLimit : membership.limit();
  for (const TimeLimit limit(kAnswerLimit + busy); !resting();) {
    events_.step(std::min(0.1, limit.left()));
    if (!limit.reached()) continue;
    for (const auto& [number, m] : membership.members()) {
      if (m.phase == Phase::member && !m.halted) membership.kill(number, "did not answer");
    }
    return false;
  }
  return true;
}

bool GroupFormation::publish(uint32_t source) {
  WorkerMembership& membership = parts_.membership;
  PublishedState& state = parts_.state;
  if (!membership.order(source, state.ask(source))) {
    events_.step(0.1);  // the worker was lost; handle that event
    return false;
  }
  for (const TimeLimit limit(kAnswerLimit + membership.limit()); !state.answered();) {
    events_.step(std::min(0.1, limit.left()));
    if (membership.members().count(source) == 0) return false;
    if (!limit.reached()) continue;
    membership.kill(source, "did not answer");
    return false;
  }
  // From another host the state is copied here. Losses meanwhile are handled.
  const int host = membership.host_of(membership.at(source));
  if (host != 0 && !parts_.hosts.pull(host, state.next_range(), kStatePatience)) {
    membership.kill(source, "did not publish its state");
    events_.step(0.1);
    return false;
  }
  state.accept();
  parts_.records.forget_before(state.iteration());
  return true;
}

// Copies the published state to the hosts of the members that need it, before any member waits for
// the others. Workers that become ready meanwhile need it, too. Returns false if a host is lost.
bool GroupFormation::bring_state(const Base& base) {
  struct Brought {
    uint64_t presence, push;
    TimeLimit limit;
    std::set<uint32_t> lost = {};  // members whose state came too late
  };
  WorkerMembership& membership = parts_.membership;
  detail::HostMemory* const hosts = membership.pool().hosts();
  std::map<int, Brought> brought;  // by host
  std::optional<TimeLimit> stopped;
  const SharedRange& range = parts_.state.range();
  const double each = kBringPatience + kBringSlowly * static_cast<double>(range.bytes);
  for (;;) {
    bool all = true, any_ready = false;
    std::vector<int> late;
    for (const auto& [number, m] : membership.members()) {
      any_ready = any_ready || m.phase != Phase::building;
      const int host = membership.host_of(m);
      if (host == 0 || m.phase == Phase::building || !base.lags(m)) continue;
      const uint64_t presence = hosts->presence(host);
      auto at = brought.find(host);
      if (at != brought.end() && !at->second.lost.empty()) {
        all = false;
        if (at->second.lost.count(number) > 0) continue;
        brought.erase(at);  // the replacement gets the state again
        at = brought.end();
      }
      if (at == brought.end()) {
        const uint64_t push = hosts->push(host, range);
        at = brought.emplace(host, Brought{presence, push, TimeLimit(each)}).first;
      }
      Brought& state = at->second;
      if (state.presence != presence) return false;
      if (hosts->pushed(host, state.push)) continue;
      all = false;
      if (state.limit.reached()) {
        late.push_back(host);
      }
    }
    for (const int host : late) {
      Brought& state = brought.at(host);
      for (const auto& [number, m] : membership.members()) {
        if (membership.host_of(m) != host || m.phase == Phase::building || !base.lags(m)) {
          continue;
        }
        if (!state.lost.insert(number).second) continue;
        membership.kill(number, "did not get the group's state in time");
      }
    }
    // No event may be handled between this check and the forming of the group.
    if (all || !any_ready) return any_ready;
    const IterationsSetup& setup = parts_.setup;
    if (!stopped && setup.stop && setup.stop()) stopped.emplace(kStopPatience);
    if (stopped && stopped->reached()) {
      throw Cancelled(
          "[training] the training was stopped while its state was copied to other hosts",
          "it can resume from its last checkpoint");
    }
    events_.step(0.01);
  }
}

void GroupFormation::let_go(const std::vector<uint32_t>& leaving, int64_t iteration,
                            int64_t members) {
  WorkerMembership& membership = parts_.membership;
  for (const uint32_t number : leaving) {
    const WorkerMember& m = membership.at(number);
    const WorkerChange change{.worker = number,
                              .pid = m.pid,
                              .host = membership.name_of_host(m),
                              .left = true,
                              .iteration = iteration,
                              .members = members};
    membership.release(number);
    if (parts_.setup.on_change) parts_.setup.on_change(change);
  }
}

bool GroupFormation::form(const Base& base) {
  if (!first_base_) first_base_ = base.iteration;
  WorkerMembership& membership = parts_.membership;
  const IterationsSetup& setup = parts_.setup;
  // Ordered by slot, so that each slot keeps its load.
  std::vector<uint32_t> ranks, leaving;
  // A member leaves once another one has all that it has.
  const bool others =
      std::any_of(membership.members().begin(), membership.members().end(), [&](const auto& entry) {
        const WorkerMember& m = entry.second;
        return m.phase == Phase::member && !m.leaving && m.finished == base.iteration;
      });
  for (const auto& [number, m] : membership.members()) {
    if (m.phase == Phase::building) continue;
    (others && m.leaving ? leaving : ranks).push_back(number);
  }
  std::sort(ranks.begin(), ranks.end(),
            [&](uint32_t a, uint32_t b) { return membership.at(a).slot < membership.at(b).slot; });
  std::vector<double> loads;
  ClientGroupOptions of_group{.workers = ranks, .threads = setup.options.threads};
  for (const uint32_t number : ranks) {
    loads.push_back(load_of(setup.options, membership.at(number).slot));
    of_group.hosts.push_back(membership.host_of(membership.at(number)));
  }
  if (std::none_of(loads.begin(), loads.end(), [](double load) { return load > 0; })) {
    // All members with a load are missing at present, so idle members take their place.
    loads.assign(loads.size(), 1);
  }
  const ReadyReport& ready = *membership.ready();
  const GroupSumOptions sum{
      .count = static_cast<size_t>(ready.sum_count),
      .most_leaves = ready.most_leaves,
      .leaf_metadata_bytes = static_cast<size_t>(ready.leaf_metadata_bytes),
      .member_metadata_bytes = static_cast<size_t>(ready.member_metadata_bytes),
      .operand_bytes = static_cast<size_t>(ready.operand_bytes),
      .update_ranges = ready.update_ranges};
  of_group.window_bytes = GroupSum::window_bytes(sum, static_cast<int>(ranks.size()));
  PresentGroup& group = parts_.group;
  group.begin(membership, ranks, of_group);
  // The reporter must have the records that have not arrived.
  uint32_t reporter = ranks.front();
  for (const uint32_t number : ranks) {
    if (membership.at(number).finished == base.iteration) reporter = number;
  }
  // The same for all members, and encoded once.
  GroupOfWorkers common{.loads = loads, .members = {}, .secret = {}, .alone = {}};
  group.describe(common);
  // The client ends hanging workers before this limit.
  common.limit = 4 * std::max(membership.limit(), kAnswerLimit);
  common.next = base.iteration + 1;
  // A later worker would keep the others waiting for longer than they accept.
  common.compares = base.iteration == *first_base_;
  common.known = std::min(parts_.records.received(), base.iteration);
  common.alone = parts_.losses.choose_alone();
  const Bytes encoded = encode(common);
  bool all = true;
  for (size_t r = 0; r < ranks.size(); ++r) {
    WorkerMember& m = membership.at(ranks[r]);
    const bool joins = m.phase == Phase::ready;
    if (joins) all = membership.order(ranks[r], parts_.hosts.order_for(m)) && all;
    FormOrder f;
    f.generation = group.generation();
    group.describe(f, r);
    f.state = base.lags(m) ? parts_.state.current() : -1;
    f.reporter = ranks[r] == reporter;
    f.group = encoded;
    all = membership.order(ranks[r], f) && all;
    m.phase = Phase::member;
    m.halted = false;
    m.finished = base.iteration;
    if (joins && setup.on_change) {
      setup.on_change({.worker = ranks[r],
                       .pid = m.pid,
                       .host = membership.name_of_host(m),
                       .joined = true,
                       .how = {},
                       .iteration = base.iteration,
                       .members = static_cast<int64_t>(ranks.size())});
    }
  }
  if (all) let_go(leaving, base.iteration, static_cast<int64_t>(ranks.size()));
  parts_.records.continue_after(base.iteration);
  group.formed(base.iteration);
  const bool devices = membership.on_devices() && ranks.size() > 1;
  const double meet = devices ? kDevicesConnect : std::max(0.0, kHostsConnect - membership.limit());
  events_.group_begins(group.far() ? meet : 0);
  return all;
}

GroupFormation::Base GroupFormation::find_base() const {
  const WorkerMembership& membership = parts_.membership;
  Base base;
  for (const auto& [number, m] : membership.members()) {
    if (m.phase == Phase::building) continue;
    base.any_ready = true;
    // Of equal members it prefers one of this machine, whose state need not be copied.
    const bool nearer = base.source != 0 && m.finished == base.iteration &&
                        membership.host_of(m) == 0 &&
                        membership.host_of(membership.members().at(base.source)) != 0;
    if (m.phase == Phase::member && (m.finished > base.iteration || nearer)) {
      base.iteration = m.finished;
      base.source = number;
    }
  }
  return base;
}

void GroupFormation::regroup() {
  WorkerMembership& membership = parts_.membership;
  const IterationsSetup& setup = parts_.setup;
  for (;;) {
    if (!await_halt()) continue;
    Base base = find_base();
    const bool first = parts_.group.generation() == 0;
    const bool hosts = membership.pool().hosts() != nullptr;
    const bool elsewhere = !membership.own_pool() || hosts;
    if ((!first || hosts) && !base.any_ready && elsewhere && setup.stop && setup.stop()) {
      throw Cancelled("[training] the training was stopped while it had no workers",
                      "it can resume from its last checkpoint");
    }
    if ((first && membership.awaits_first()) || !base.any_ready) {
      events_.step(0.1);
      continue;
    }
    base.published = base.iteration < 0;
    if (base.published) {
      base.iteration = parts_.state.iteration();
    } else if (std::any_of(membership.members().begin(), membership.members().end(),
                           [&](const auto& entry) {
                             return entry.second.phase != Phase::building &&
                                    base.lags(entry.second);
                           })) {
      if (!publish(base.source)) continue;
    }
    if (!bring_state(base) || !form(base)) continue;
    parts_.losses.report(static_cast<int64_t>(parts_.group.ranks().size()));
    return;
  }
}

}  // namespace lockstep
