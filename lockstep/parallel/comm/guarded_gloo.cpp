#include "lockstep/parallel/comm/guarded_gloo.h"

#include <gloo/transport/pair.h>
#include <gloo/transport/tcp/loop.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <fstream>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include "lockstep/base/threads/mutex.h"

namespace lockstep {
namespace {

using gloo::transport::tcp::Handler;

// Ends a connection whose handler has thrown: shuts it down, which the other side detects, and
// reads nothing more. Threads that wait for it here are not woken by this. Pair::close() would
// take the connection's lock, which another thread may hold while it waits for this one.
void silence(int epoll, Handler* handler) {
  std::ifstream registered("/proc/self/fdinfo/" + std::to_string(epoll));
  for (std::string line; std::getline(registered, line);) {
    int descriptor = -1;
    unsigned events = 0;
    unsigned long long data = 0;
    if (std::sscanf(line.c_str(), "tfd: %d events: %x data: %llx", &descriptor, &events, &data) <
            3 ||
        data != reinterpret_cast<uintptr_t>(handler)) {
      continue;
    }
    if ((events & EPOLLONESHOT) != 0) return;  // already shut down, this was its last event
    // The descriptor is still open: a thread that closes it first unregisters it and then waits for
    // this thread.
    ::shutdown(descriptor, SHUT_RDWR);
    epoll_event once{};
    once.events = EPOLLONESHOT;
    once.data.ptr = handler;
    ::epoll_ctl(epoll, EPOLL_CTL_MOD, descriptor, &once);
    return;
  }
}

struct Listeners {
  Mutex mutex;
  std::set<const ConnectionFailures::Failed*> all LOCKSTEP_GUARDED_BY(mutex);
};

Listeners& listeners() {
  static Listeners* const listeners = new Listeners;  // devices' threads may outlive statics
  return *listeners;
}

void tell_of_failure(const gloo::transport::Pair* connection) {
  const MutexLock lock(listeners().mutex);
  for (const auto* failed : listeners().all) (*failed)(connection);
}

}  // namespace

ConnectionFailures::ConnectionFailures(Failed failed) : failed_(std::move(failed)) {
  const MutexLock lock(listeners().mutex);
  listeners().all.insert(&failed_);
}

ConnectionFailures::~ConnectionFailures() {
  const MutexLock lock(listeners().mutex);
  listeners().all.erase(&failed_);
}

std::shared_ptr<gloo::transport::Device> create_guarded_device(
    const gloo::transport::tcp::attr& attributes) {
  return gloo::transport::tcp::CreateDevice(attributes);
}

}  // namespace lockstep

namespace gloo::transport::tcp {

// Replaces Loop::run() of Gloo's shared library: the dynamic linker finds this definition first. A
// custom connection class is not possible, because Debian's package lacks some of the headers.
void Loop::run() {
  constexpr int kMilliseconds = 10;
  std::array<epoll_event, capacity_> events{};
  while (!done_) {
    // Wakes threads that have unregistered a connection and wait until this thread no longer uses
    // it.
    cv_.notify_all();
    const int count = epoll_wait(fd_, events.data(), capacity_, kMilliseconds);
    if (count < 0 && errno != EINTR) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    for (int i = 0; i < count; ++i) {
      const epoll_event& event = events[static_cast<size_t>(i)];
      auto* const handler = static_cast<Handler*>(event.data.ptr);
      try {
        handler->handleEvents(static_cast<int>(event.events));
      } catch (const std::exception&) {
        if (const auto* const pair = dynamic_cast<gloo::transport::Pair*>(handler)) {
          lockstep::silence(fd_, handler);
          lockstep::tell_of_failure(pair);
        } else {  // it stays registered and may throw again: limits the rate
          std::this_thread::sleep_for(std::chrono::milliseconds(kMilliseconds));
        }
      }
    }
  }
}

}  // namespace gloo::transport::tcp
