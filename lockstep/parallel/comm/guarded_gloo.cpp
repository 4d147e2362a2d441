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
#include <string>
#include <thread>

namespace lockstep {
namespace {

using gloo::transport::tcp::Handler;

// Ends a connection whose handler has thrown: the other side is told, nothing more is read, and who
// waits for it here waits until its limit. Pair::close() would take the connection's lock, which
// another thread may hold while it waits for this one.
void silence(int epoll, Handler* handler) {
  std::ifstream registered("/proc/self/fdinfo/" + std::to_string(epoll));
  for (std::string line; std::getline(registered, line);) {
    int descriptor = -1;
    unsigned events = 0;
    unsigned long long data = 0;
    if (std::sscanf(line.c_str(), "tfd: %d events: %x data: %llx", &descriptor, &events, &data) < 3 ||
        data != reinterpret_cast<uintptr_t>(handler)) {
      continue;
    }
    if ((events & EPOLLONESHOT) != 0) return;  // it was its last event
    // Still open: whoever closes it takes it out first, and waits for this thread then.
    ::shutdown(descriptor, SHUT_RDWR);
    epoll_event once{};
    once.events = EPOLLONESHOT;
    once.data.ptr = handler;
    ::epoll_ctl(epoll, EPOLL_CTL_MOD, descriptor, &once);
    return;
  }
}

}  // namespace

std::shared_ptr<gloo::transport::Device> create_guarded_device(
    const gloo::transport::tcp::attr& attributes) {
  return gloo::transport::tcp::CreateDevice(attributes);
}

}  // namespace lockstep

namespace gloo::transport::tcp {

// Takes the place of the shared library's: the dynamic linker finds this one first. Debian has not
// all of the headers that a class of connections of one's own would take.
void Loop::run() {
  constexpr int kMilliseconds = 10;
  std::array<epoll_event, capacity_> events{};
  while (!done_) {
    // Those who have taken a connection out wait until nothing is at work with it any more.
    cv_.notify_all();
    const int count = epoll_wait(fd_, events.data(), capacity_, kMilliseconds);
    if (count < 0 && errno != EINTR) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    for (int i = 0; i < count; ++i) {
      const epoll_event& event = events[static_cast<size_t>(i)];
      auto* const handler = static_cast<Handler*>(event.data.ptr);
      try {
        handler->handleEvents(static_cast<int>(event.events));
      } catch (const std::exception&) {
        if (dynamic_cast<gloo::transport::Pair*>(handler) != nullptr) {
          lockstep::silence(fd_, handler);
        } else {  // it stays, and may throw again: not as fast as it can
          std::this_thread::sleep_for(std::chrono::milliseconds(kMilliseconds));
        }
      }
    }
  }
}

}  // namespace gloo::transport::tcp
