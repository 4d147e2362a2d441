#include "lockstep/parallel/remote/remote_hosts.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/threads/quiet_thread.h"
#include "lockstep/parallel/remote/host_starter.h"
#include "lockstep/parallel/remote/remote_hosts_thread.h"

namespace lockstep::detail {

RemoteHosts::RemoteHosts(SharedMemory& memory, const SharedPlace& bell,
                         const ProcessPoolOptions& options, SupervisorEvents events)
    : state_(std::make_unique<RemoteHostsState>(memory, bell, options, std::move(events))) {
  RemoteHostsState& s = *state_;
  // Worker numbers have eight bits for the host.
  if (options.hosts.size() > 255) throw InvalidArgument("[pool] more than 255 hosts");
  for (const auto& host : options.hosts) {
    if (!host.name.empty()) s.statuses.push_back({.name = host.name});
    const int number = host.name.empty() ? 0 : static_cast<int>(s.statuses.size());
    for (int i = 0; i < host.workers; ++i) {
      s.host_of_slot.push_back(number);
      s.local_rank_of_slot.push_back(i);
    }
  }
  s.any_hosts = !s.statuses.empty();
  s.arrived.resize(s.statuses.size());
}

RemoteHosts::~RemoteHosts() { stop(); }

void RemoteHosts::begin() {
  RemoteHostsState& s = *state_;
  if (!s.any_hosts) return;
  s.thread = quiet_thread([&s] {
    try {
      run_remote_hosts(s);
    } catch (const std::exception& e) {
      s.events.failed(e.what());
    }
  });
  // A scheduler's refusal is an error of whoever opens the pool.
  if (s.options.starter) s.begun.get_future().get();
}

void RemoteHosts::stop() {
  RemoteHostsState& s = *state_;
  {
    const MutexLock lock(s.mutex);
    s.ended = true;
    s.changed.notify_all();
  }
  s.ring();
  if (s.thread.joinable()) s.thread.join();
}

void RemoteHosts::start(const SlotTicket& ticket) { state_->ask(StartRequest{ticket}); }

void RemoteHosts::kill(uint32_t worker, const std::string& reason) {
  state_->ask(KillRequest{worker, reason});
}

void RemoteHosts::ring() { state_->ring(); }

void RemoteHosts::forget(const SharedPlace& place) {
  if (state_->any_hosts) state_->ask(HostRequest{0, HostOrder(MemoryForget{place})});
}

int RemoteHosts::host_of(int slot) const {
  const auto i = static_cast<size_t>(slot);
  return i < state_->host_of_slot.size() ? state_->host_of_slot[i] : 0;
}

int RemoteHosts::local_rank_of(int slot) const {
  const auto i = static_cast<size_t>(slot);
  return i < state_->local_rank_of_slot.size() ? state_->local_rank_of_slot[i] : slot;
}

HostStatus RemoteHosts::status(int host) const {
  if (host == 0) return {.presence = 1, .name = "", .address = state_->address};
  const MutexLock lock(state_->mutex);
  return state_->status(host);
}

std::string RemoteHosts::waits_for() const {
  return state_->options.starter ? state_->options.starter->waits_for() : "";
}

uint64_t RemoteHosts::push(int host, const SharedPlace& place) {
  RemoteHostsState& s = *state_;
  uint64_t number = 0;
  {
    const MutexLock lock(s.mutex);
    number = s.next++;
  }
  s.ask(HostRequest{host, Push{.place = place, .number = number}});
  return number;
}

bool RemoteHosts::pushed(int host, uint64_t number) const {
  const MutexLock lock(state_->mutex);
  return state_->status(host).presence != 0 &&
         state_->arrived[static_cast<size_t>(host - 1)] >= number;
}

bool RemoteHosts::pull(int host, uint64_t presence, const SharedPlace& place, double patience) {
  // Limits the memory and bandwidth that compete with other messages.
  constexpr size_t kPart = 8 * kPiece;
  for (size_t at = 0; at < place.bytes; at += kPart) {
    const SharedPlace part{place.offset + at, std::min(kPart, place.bytes - at)};
    if (!pull_part(host, presence, part, TimeLimit(patience))) return false;
  }
  return true;
}

bool RemoteHosts::pull_part(int host, uint64_t presence, const SharedPlace& place,
                            const TimeLimit& limit) {
  RemoteHostsState& s = *state_;
  uint64_t number = 0;
  {
    const MutexLock lock(s.mutex);
    number = s.next++;
    s.pulls[number] = false;
  }
  s.ask(HostRequest{host, HostOrder(MemoryRead{place, number})});
  const MutexLock lock(s.mutex);
  while (!s.pulls[number] && !s.gone(host, presence) && !limit.reached()) {
    s.changed.wait_until(s.mutex, limit);
  }
  const bool came = s.pulls[number] && !s.gone(host, presence);
  s.pulls.erase(number);
  return came;
}

void RemoteHosts::watch(int host, const SharedPlace& place) {
  state_->ask(HostRequest{host, HostOrder(MemoryWatch{place})});
}

void RemoteHosts::end_group(int host, const SharedPlace& place) {
  state_->ask(HostRequest{host, HostOrder(GroupEnd{place}), true});
}

}  // namespace lockstep::detail
