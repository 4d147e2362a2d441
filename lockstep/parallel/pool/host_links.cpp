#include "lockstep/parallel/pool/host_links.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/quiet_thread.h"
#include "lockstep/parallel/pool/host_line.h"

namespace lockstep::detail {

HostLinks::HostLinks(SharedMemory& memory, const SharedPlace& bell,
                     const ProcessPoolOptions& options, HostsTold told)
    : state_(std::make_unique<HostLineState>(memory, bell, options, std::move(told))) {
  HostLineState& s = *state_;
  // Numbers of workers hold the host's in eight bits.
  if (options.hosts.size() > 255) throw InvalidArgument("[pool] more than 255 hosts");
  for (const auto& host : options.hosts) {
    if (!host.name.empty()) s.statuses.push_back({.name = host.name});
    const int number = host.name.empty() ? 0 : static_cast<int>(s.statuses.size());
    for (int i = 0; i < host.workers; ++i) {
      s.host_of_seat.push_back(number);
      s.slot_of_seat.push_back(i);
    }
  }
  s.arrived.resize(s.statuses.size());
}

HostLinks::~HostLinks() { stop(); }

void HostLinks::begin() {
  HostLineState& s = *state_;
  if (s.statuses.empty()) return;
  s.thread = quiet_thread([&s] {
    try {
      run_host_line(s);
    } catch (const std::exception& e) {
      s.told.reports.failed(e.what());
    }
  });
}

void HostLinks::stop() {
  HostLineState& s = *state_;
  {
    const std::lock_guard lock(s.mutex);
    s.ended = true;
    s.changed.notify_all();
  }
  s.ring();
  if (s.thread.joinable()) s.thread.join();
}

void HostLinks::start(const SeatTicket& ticket) { state_->ask(StartRequest{ticket}); }

void HostLinks::kill(uint32_t worker, const std::string& reason) {
  state_->ask(KillRequest{worker, reason});
}

void HostLinks::ring() { state_->ring(); }

void HostLinks::forget(const SharedPlace& place) {
  if (!state_->statuses.empty()) state_->ask(HostRequest{0, HostOrder(MemoryForget{place})});
}

int HostLinks::host_of(int seat) const {
  const auto i = static_cast<size_t>(seat);
  return i < state_->host_of_seat.size() ? state_->host_of_seat[i] : 0;
}

int HostLinks::slot_of(int seat) const {
  const auto i = static_cast<size_t>(seat);
  return i < state_->slot_of_seat.size() ? state_->slot_of_seat[i] : seat;
}

HostStatus HostLinks::status(int host) const {
  if (host == 0) return {.presence = 1, .name = "", .address = state_->address};
  const std::lock_guard lock(state_->mutex);
  return state_->status(host);
}

uint64_t HostLinks::push(int host, const SharedPlace& place) {
  HostLineState& s = *state_;
  uint64_t number = 0;
  {
    const std::lock_guard lock(s.mutex);
    number = s.next++;
  }
  s.ask(HostRequest{host, Push{.place = place, .number = number}});
  return number;
}

bool HostLinks::pushed(int host, uint64_t number) const {
  const std::lock_guard lock(state_->mutex);
  return state_->status(host).presence != 0 &&
         state_->arrived[static_cast<size_t>(host - 1)] >= number;
}

bool HostLinks::pull(int host, uint64_t presence, const SharedPlace& place, double patience) {
  // Not more at a time than memory and line can take beside what else goes there.
  constexpr size_t kPart = 8 * kPiece;
  for (size_t at = 0; at < place.bytes; at += kPart) {
    const SharedPlace part{place.offset + at, std::min(kPart, place.bytes - at)};
    if (!pull_part(host, presence, part, TimeLimit(patience))) return false;
  }
  return true;
}

bool HostLinks::pull_part(int host, uint64_t presence, const SharedPlace& place,
                          const TimeLimit& limit) {
  HostLineState& s = *state_;
  uint64_t number = 0;
  {
    const std::lock_guard lock(s.mutex);
    number = s.next++;
    s.pulls[number] = false;
  }
  s.ask(HostRequest{host, HostOrder(MemoryRead{place, number})});
  std::unique_lock lock(s.mutex);
  const auto gone = [&] { return s.ended || s.status(host).presence != presence; };
  while (!s.pulls[number] && !gone() && !limit.reached()) {
    s.changed.wait_for(lock, std::chrono::duration<double>(std::min(limit.left(), 3600.0)));
  }
  const bool came = s.pulls[number] && !gone();
  s.pulls.erase(number);
  return came;
}

void HostLinks::watch(int host, const SharedPlace& place) {
  state_->ask(HostRequest{host, HostOrder(MemoryWatch{place})});
}

void HostLinks::end_group(int host, const SharedPlace& place) {
  state_->ask(HostRequest{host, HostOrder(GroupEnd{place}), true});
}

}  // namespace lockstep::detail
