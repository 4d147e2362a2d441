// The thread that manages a pool's workers on other hosts, and the state that it shares with its
// callers: see remote_hosts.h.
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <functional>
#include <future>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "lockstep/base/os/descriptor.h"
#include "lockstep/base/threads/mutex.h"
#include "lockstep/cluster/remote/agent_messages.h"
#include "lockstep/cluster/remote/host_starter.h"
#include "lockstep/parallel/process/host_memory.h"
#include "lockstep/parallel/process/process_pool_options.h"
#include "lockstep/parallel/process/supervisor.h"

namespace lockstep::detail {

// A region's contents to be copied to a host.
struct Push {
  SharedRange range;
  uint64_t number = 0;
  SharedRegion region = {};
  size_t at = 0;
};

using Waiting = std::variant<HostOrder, Push>;

struct StartRequest {
  SlotTicket ticket;
};
struct KillRequest {
  uint32_t worker = 0;
  std::string reason;
};
struct HostRequest {
  int host = 0;  // 0: all present hosts
  Waiting what;
  bool urgent = false;
};
using Request = std::variant<StartRequest, KillRequest, HostRequest>;

// This machine's address as seen by the hosts, which come by themselves if there is a starter.
// Throws InvalidArgument if it cannot be determined.
std::string own_address(const ProcessPoolOptions& options, bool has_starter);

struct RemoteHostsState {
  RemoteHostsState(SharedMemory& m, const SharedRange& b, const ProcessPoolOptions& o,
                   std::shared_ptr<HostStarter> h, SupervisorEvents e)
      : memory(m),
        bell(b),
        options(o),
        starter(std::move(h)),
        events(std::move(e)),
        address(own_address(options, starter != nullptr)) {}

  SharedMemory& memory;
  const SharedRange bell;
  const ProcessPoolOptions options;
  const std::shared_ptr<HostStarter> starter;  // or null
  const SupervisorEvents events;
  const std::string address;
  const Descriptor asked{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  // Set before the thread begins.
  std::vector<int> host_of_slot, local_rank_of_slot;
  bool any_hosts = false;

  Mutex mutex;
  ConditionVariable changed;
  std::vector<Request> requests LOCKSTEP_GUARDED_BY(mutex);
  std::vector<HostStatus> statuses LOCKSTEP_GUARDED_BY(mutex);  // by host - 1
  // Number of the last completed push, by host - 1.
  std::vector<uint64_t> arrived LOCKSTEP_GUARDED_BY(mutex);
  // Pending ones: whether the contents have arrived.
  std::map<uint64_t, bool> pulls LOCKSTEP_GUARDED_BY(mutex);
  // Hosts of regions that no other host uses, by offset; offsets of slots whose rings have changed.
  std::map<size_t, int> owners LOCKSTEP_GUARDED_BY(mutex);
  std::vector<size_t> rung LOCKSTEP_GUARDED_BY(mutex);
  uint64_t next LOCKSTEP_GUARDED_BY(mutex) = 1;
  std::string endpoint LOCKSTEP_GUARDED_BY(mutex);  // where it listens; "" before `begun`
  bool ended LOCKSTEP_GUARDED_BY(mutex) = false;
  std::thread thread;
  std::promise<void> begun;  // or the error, if hosts cannot be started

  void wake() const {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t n = write(asked.get(), &one, sizeof one);
  }

  // The thread empties the lists of requests and of changed slots each by itself, so the first
  // entry of either wakes it.
  void ask(Request request) LOCKSTEP_EXCLUDES(mutex) {
    bool first = false;
    {
      const MutexLock lock(mutex);
      first = requests.empty();
      requests.push_back(std::move(request));
    }
    if (first) wake();
  }

  void ring(size_t slot) LOCKSTEP_EXCLUDES(mutex) {
    bool first = false;
    {
      const MutexLock lock(mutex);
      first = rung.empty();
      rung.push_back(slot);
    }
    if (first) wake();
  }

  HostStatus& status(int host) LOCKSTEP_REQUIRES(mutex) {
    return statuses[static_cast<size_t>(host - 1)];
  }
  // Whether the host's process with this presence can no longer answer.
  bool gone(int host, uint64_t presence) LOCKSTEP_REQUIRES(mutex) {
    return ended || status(host).presence != presence;
  }
};

// Runs until the state is marked as ended. Fulfils `begun` once hosts can come. Throws what
// HostProcesses throws.
void run_remote_hosts(RemoteHostsState& state);

}  // namespace lockstep::detail
