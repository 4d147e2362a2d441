#include "lockstep/train/workers/membership/worker_events.h"

#include <algorithm>
#include <chrono>
#include <set>
#include <utility>
#include <variant>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

// The last part of the text, short enough for a log.
std::string last_lines(std::string text) {
  constexpr size_t kMost = 1000;
  if (text.size() > kMost) text.erase(0, text.size() - kMost);
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

}  // namespace

bool WorkerEvents::step(double seconds) {
  parts_.hosts.settle();
  auto event = parts_.membership.wait(seconds, parts_.losses.may_replace());
  if (!event) return false;
  // With many workers many events arrive at once. What is done for all workers is done once then.
  constexpr int kMost = 256;
  for (int handled = 0; event;
       event = ++handled < kMost ? parts_.membership.next() : std::nullopt) {
    handle(*event);
  }
  parts_.hosts.settle();
  return true;  // while events arrive, no worker counts as late
}

void WorkerEvents::begin_waiting() {
  looked_ = Clock::now();
  progress_ = std::max(progress_, looked_);
}

void WorkerEvents::progressed() { progress_ = std::max(progress_, Clock::now()); }

void WorkerEvents::group_begins(double seconds) {
  const std::chrono::duration<double> more(seconds);
  progress_ = Clock::now() + std::chrono::duration_cast<Clock::duration>(more);
}

void WorkerEvents::await_progress() {
  const auto now = Clock::now();
  // Time in which this process did not look, because it was stopped perhaps, does not count.
  constexpr double kLook = 0.1, kGap = 1;
  const double gap = std::chrono::duration<double>(now - looked_).count();
  looked_ = now;
  if (gap > kGap) progress_ = std::max(progress_, now);
  const double left =
      parts_.membership.limit() - std::chrono::duration<double>(now - progress_).count();
  if (step(std::clamp(left, 0.001, kLook)) || left > 0) return;
  end_hanging();
}

bool WorkerEvents::waits_for_network() {
  if (parts_.group.far()) parts_.hosts.collect_statuses();
  int64_t waits = 0;
  for (const auto& [number, m] : parts_.membership.members()) {
    waits += m.status().network_waits.load();
  }
  return std::exchange(network_waits_, waits) != waits;
}

// There was no progress for too long: ends the members that the others wait for.
void WorkerEvents::end_hanging() {
  WorkerMembership& membership = parts_.membership;
  PresentGroup& group = parts_.group;
  if (waits_for_network()) {  // it has a limit of its own
    progress_ = Clock::now();
    return;
  }
  const auto awaited = parts_.validation.awaited();
  for (const uint32_t number : awaited.value_or(std::set<uint32_t>{})) {
    membership.kill(number, "hung (it has not done its part of a validation)");
  }
  progress_ = Clock::now();
  if (awaited) return;
  std::string where;
  const std::vector<uint32_t> missing = group.missing(where);
  for (const uint32_t number : missing) membership.kill(number, "hung (" + where + ")");
  if (!missing.empty()) return;
  if (group.far() && group.ranks().size() > 1) {
    // No member is late, so data was lost between hosts or devices. A member that does not halt
    // after that is hanging.
    parts_.losses.count_failed_rendezvous("no data has arrived for too long");
    return group.end();
  }
  for (const uint32_t number : group.ranks()) membership.kill(number, "hung");
}

void WorkerEvents::handle(const PoolWorkerEvent& event) {
  WorkerMembership& membership = parts_.membership;
  const auto found = membership.members().find(event.worker);
  if (found == membership.members().end()) return;
  found->second.pid = event.pid;
  if (found->second.leaving && event.kind != PoolWorkerEvent::Kind::message &&
      found->second.phase == WorkerMember::Phase::building) {
    membership.remove(event);  // it has left
    return;
  }
  if (event.kind == PoolWorkerEvent::Kind::failed)
    event.error.rethrow(name_of_worker(event.worker) + ": ");
  if (event.kind == PoolWorkerEvent::Kind::lost) {
    // If no worker gets as far as to begin, a replacement would not either.
    const bool far = membership.host_of(found->second) != 0;
    const bool first = far ? parts_.group.generation() == 0
                           : !membership.ready() && !membership.others_began(event.worker);
    if (event.pid == 0 && !event.cancelled && first) {
      throw WorkerLost(name_of_worker(event.worker) + ": " + event.how, event.error.hint);
    }
    return handle_loss(event);
  }
  std::visit([&](const auto& report) { take(event.worker, report); },
             decode<WorkerReport>(event.content));
}

void WorkerEvents::handle_loss(const PoolWorkerEvent& event) {
  WorkerMembership& membership = parts_.membership;
  const IterationsSetup& setup = parts_.setup;
  const WorkerMember m = membership.remove(event);
  const int host = membership.host_of(m);
  if (m.pid == 0 && host != 0) {
    // The host has not returned. A new attempt follows; the failure is reported once.
    if (parts_.hosts.note_missing(host) && setup.notice) {
      setup.notice(event.how + "; the other workers continue, and a new attempt follows");
    }
    return;
  }
  WorkerLosses::Loss loss{{.worker = event.worker,
                           .pid = m.pid,
                           .host = membership.name_of_host(m),
                           .joined = false,
                           .how = event.how,
                           .iteration = parts_.records.received(),
                           .members = 0,
                           .seconds = 0}};
  if (!event.printed.empty() && setup.notice) {
    setup.notice(name_of_worker(event.worker) + " printed last: " + last_lines(event.printed));
  }
  if (parts_.group.has(event.worker)) {
    parts_.group.end();
    // If a whole host was lost, the shard is not the cause.
    const bool there = parts_.hosts.same_agent(host);
    if (event.own_fault && there) parts_.losses.blame(m.status(), event.how);
  }
  parts_.losses.add(std::move(loss));
  // Iterations that it did not report count as progress, too.
  parts_.losses.advance_to(m.status().iteration.load());
  parts_.losses.count(event);
}

void WorkerEvents::take(uint32_t worker, const ReadyReport& r) {
  parts_.membership.take(worker, r);
}

// Messages between the first members of hosts go through the client.
void WorkerEvents::take(uint32_t worker, const RendezvousReport& r) {
  if (r.generation != parts_.group.generation()) return;
  for (auto& [first, entries] : parts_.group.meet(worker, r.entries)) {
    parts_.membership.order(first, RendezvousOrder{r.generation, std::move(entries)});
  }
}

void WorkerEvents::take(uint32_t worker, const RecordsReport& r) {
  if (r.generation != parts_.group.generation()) return;
  const IndexRange received = parts_.records.add(worker, r.records);
  for (int64_t iteration = received.first; iteration < received.end(); ++iteration) {
    progress_ = Clock::now();
    parts_.losses.advance_to(iteration);
    parts_.losses.finished(iteration);
  }
}

void WorkerEvents::take(uint32_t worker, const HaltedReport& r) {
  if (r.generation != parts_.group.generation()) return;
  WorkerMembership& membership = parts_.membership;
  WorkerMember& m = membership.at(worker);
  m.halted = true;
  m.finished = r.finished;
  if (!parts_.group.broken() && !r.why.empty()) {
    const std::string host =
        membership.host_of(m) == 0 ? "this machine" : membership.name_of_host(m);
    parts_.losses.count_failed_rendezvous(host + " reports: " + r.why);
  }
  parts_.group.end();
}

// A worker whose result differs from the others' is replaced, and the iteration is computed again.
void WorkerEvents::take(uint32_t, const DisagreementReport& r) {
  if (r.generation != parts_.group.generation() || r.generation == disagreed_) return;
  disagreed_ = r.generation;  // all members report the same
  parts_.losses.count_disagreement(r);
  for (const int32_t rank : r.faulty) {
    parts_.membership.kill(parts_.group.ranks().at(static_cast<size_t>(rank)),
                           "computed a different result (" + r.message + ")");
  }
}

void WorkerEvents::take(uint32_t worker, const PublishedReport& r) { parts_.state.take(worker, r); }

void WorkerEvents::take(uint32_t worker, const ValidatedReport& r) {
  if (r.generation != parts_.group.generation()) return;
  std::optional<NotFinite> found;
  if (!r.not_finite.empty()) found = {r.not_finite, r.hint};
  parts_.validation.done(worker, std::move(found));
}

void WorkerEvents::take(uint32_t worker, const BrokenReport& r) {
  if (r.generation != parts_.group.generation()) return;
  parts_.membership.kill(worker, "cannot continue (" + r.why + ")");
}

void WorkerEvents::take(uint32_t, const NoticeReport& r) { parts_.membership.take(r); }

}  // namespace lockstep
