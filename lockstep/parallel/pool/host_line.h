// The thread that has a pool's workers on other hosts, and what it shares with those who ask it for
// something: see host_links.h.
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "lockstep/base/descriptor.h"
#include "lockstep/parallel/pool/host_memory.h"
#include "lockstep/parallel/pool/host_messages.h"
#include "lockstep/parallel/pool/process_warden.h"

namespace lockstep::detail {

// What the pool is told, by the thread.
struct HostsTold {
  WardenReports reports;
  // What a worker had printed last, before its end is reported.
  std::function<void(uint32_t worker, std::string text)> printed;
  std::function<void()> rung;  // there are reports, or there is room for orders
};

// A region's contents on their way.
struct Push {
  SharedPlace place;
  uint64_t number = 0;
  SharedRegion region = {};
  size_t at = 0;
};

using Waiting = std::variant<HostOrder, Push>;

struct StartRequest {
  SeatTicket ticket;
};
struct KillRequest {
  uint32_t worker = 0;
  std::string reason;
};
struct HostRequest {
  int host = 0;  // 0: all that are there
  Waiting what;
  bool urgent = false;
};
using Request = std::variant<StartRequest, KillRequest, HostRequest>;

// Where the hosts find this machine. Throws InvalidArgument where nobody knows.
std::string own_address(const ProcessPoolOptions& options);

// Guarded by the mutex, where it changes.
struct HostLineState {
  HostLineState(SharedMemory& m, const SharedPlace& b, const ProcessPoolOptions& o, HostsTold t)
      : memory(m), bell(b), options(o), told(std::move(t)), address(own_address(options)) {}

  SharedMemory& memory;
  const SharedPlace bell;
  const ProcessPoolOptions options;
  const HostsTold told;
  const std::string address;
  const Descriptor asked{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  std::vector<int> host_of_seat, slot_of_seat;

  mutable std::mutex mutex;
  std::condition_variable changed;
  std::vector<Request> requests;
  std::vector<HostStatus> statuses;  // by host - 1
  std::vector<uint64_t> arrived;     // the last push that has, by host - 1
  std::map<uint64_t, bool> pulls;    // under way: whether it has come
  uint64_t next = 1;
  bool ended = false;
  std::thread thread;

  void ring() const {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t n = write(asked.get(), &one, sizeof one);
  }

  void ask(Request request) {
    {
      const std::lock_guard lock(mutex);
      requests.push_back(std::move(request));
    }
    ring();
  }

  HostStatus& status(int host) { return statuses[static_cast<size_t>(host - 1)]; }
};

// Until the state says that it has ended. Throws what HostProcesses throws.
void run_host_line(HostLineState& state);

}  // namespace lockstep::detail
