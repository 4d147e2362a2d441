#include "lockstep/cluster/remote/remote_hosts.h"

#include <algorithm>
#include <string_view>

#include "lockstep/base/error.h"
#include "lockstep/base/threads/quiet_thread.h"
#include "lockstep/cluster/remote/host_starter.h"
#include "lockstep/cluster/remote/remote_hosts_thread.h"

namespace lockstep::detail {

RemoteHosts::RemoteHosts(SharedMemory& memory, const SharedRange& bell,
                         const ProcessPoolOptions& options, std::shared_ptr<HostStarter> starter,
                         SupervisorEvents events)
    : state_(std::make_unique<RemoteHostsState>(memory, bell, options, std::move(starter),
                                                std::move(events))) {
  RemoteHostsState& s = *state_;
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
  // A scheduler's refusal is thrown where the pool is opened.
  if (s.starter) s.begun.get_future().get();
}

void RemoteHosts::stop() {
  RemoteHostsState& s = *state_;
  {
    const MutexLock lock(s.mutex);
    s.ended = true;
    s.changed.notify_all();
  }
  s.wake();
  if (s.thread.joinable()) s.thread.join();
}

void RemoteHosts::start(const SlotTicket& ticket) { state_->ask(StartRequest{ticket}); }

void RemoteHosts::kill(uint32_t worker, const std::string& reason) {
  state_->ask(KillRequest{worker, reason});
}

void RemoteHosts::ring(const SharedRange& slot) { state_->ring(slot.offset); }

void RemoteHosts::forget(const SharedRange& range) {
  RemoteHostsState& s = *state_;
  if (!s.any_hosts) return;
  int host = 0;
  {
    const MutexLock lock(s.mutex);
    const auto found = s.owners.find(range.offset);
    if (found != s.owners.end()) {
      host = found->second;
      s.owners.erase(found);
    }
  }
  s.ask(HostRequest{host, HostOrder(MemoryForget{range})});
}

void RemoteHosts::belongs_to(int host, const SharedRange& range) {
  if (host == 0) return;
  const MutexLock lock(state_->mutex);
  state_->owners[range.offset] = host;
}

std::optional<std::string> RemoteHosts::share(const std::string& path) {
  if (!state_->starter) return std::nullopt;
  return state_->starter->share(path);
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
  if (state_->starter) return state_->starter->waits_for();
  constexpr std::string_view join = "join ";
  if (!state_->options.launch.starts_with(join)) return "";
  const MutexLock lock(state_->mutex);
  const size_t size = state_->statuses.size();
  const auto came = static_cast<size_t>(
      std::count_if(state_->statuses.begin(), state_->statuses.end(),
                    [](const HostStatus& status) { return status.presence != 0; }));
  if (came == size || state_->endpoint.empty()) return "";
  return "hosts, of which " + std::to_string(came) + " of " + std::to_string(size) +
         " have joined; each needs: lockstep worker --join " + state_->endpoint + " --key-file " +
         state_->options.launch.substr(join.size()) + " --index N, N from 0 to " +
         std::to_string(size - 1);
}

uint64_t RemoteHosts::presence(int host) const {
  if (host == 0) return 1;
  const MutexLock lock(state_->mutex);
  return state_->status(host).presence;
}

uint64_t RemoteHosts::push(int host, const SharedRange& range) {
  RemoteHostsState& s = *state_;
  uint64_t number = 0;
  {
    const MutexLock lock(s.mutex);
    number = s.next++;
  }
  s.ask(HostRequest{host, Push{.range = range, .number = number}});
  return number;
}

bool RemoteHosts::pushed(int host, uint64_t number) const {
  const MutexLock lock(state_->mutex);
  return state_->status(host).presence != 0 &&
         state_->arrived[static_cast<size_t>(host - 1)] >= number;
}

bool RemoteHosts::pull(int host, uint64_t presence, const SharedRange& range, double patience) {
  // Limits the memory and bandwidth that compete with other messages.
  constexpr size_t kPart = 8 * kChunk;
  for (size_t at = 0; at < range.bytes; at += kPart) {
    const SharedRange part{range.offset + at, std::min(kPart, range.bytes - at)};
    if (!pull_each({{host, presence, part}}, patience)[0]) return false;
  }
  return true;
}

std::vector<bool> RemoteHosts::pull_each(const std::vector<Pull>& pulls, double patience) {
  RemoteHostsState& s = *state_;
  const TimeLimit limit(patience);
  std::vector<uint64_t> numbers;
  for (const Pull& pull : pulls) {
    uint64_t number = 0;
    {
      const MutexLock lock(s.mutex);
      number = s.next++;
      s.pulls[number] = false;
    }
    numbers.push_back(number);
    s.ask(HostRequest{pull.host, HostOrder(MemoryRead{pull.range, number})});
  }
  std::vector<bool> came(pulls.size());
  const MutexLock lock(s.mutex);
  for (size_t i = 0; i < pulls.size(); ++i) {
    const Pull& pull = pulls[i];
    while (!s.pulls[numbers[i]] && !s.gone(pull.host, pull.presence) && !limit.reached()) {
      s.changed.wait_until(s.mutex, limit);
    }
    came[i] = s.pulls[numbers[i]] && !s.gone(pull.host, pull.presence);
    s.pulls.erase(numbers[i]);
  }
  return came;
}

void RemoteHosts::watch(int host, const SharedRange& range) {
  state_->ask(HostRequest{host, HostOrder(MemoryWatch{range})});
}

void RemoteHosts::end_group(int host, const SharedRange& range) {
  state_->ask(HostRequest{host, HostOrder(GroupEnd{range}), true});
}

}  // namespace lockstep::detail
