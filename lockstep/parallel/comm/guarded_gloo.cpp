#include "lockstep/parallel/comm/guarded_gloo.h"

#include <gloo/transport/pair.h>
#include <gloo/transport/tcp/loop.h>
#include <sys/epoll.h>

#include <array>
#include <cerrno>
#include <exception>
#include <thread>

namespace lockstep {
namespace {

// Whoever waits for it hears nothing more.
void close_connection(gloo::transport::tcp::Handler* handler) noexcept {
  try {
    if (auto* const pair = dynamic_cast<gloo::transport::Pair*>(handler)) pair->close();
  } catch (const std::exception&) {
    // It stays, and throws again: not as fast as it can.
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
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
        lockstep::close_connection(handler);
      }
    }
  }
}

}  // namespace gloo::transport::tcp
