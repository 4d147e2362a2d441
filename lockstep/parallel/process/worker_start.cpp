#include "lockstep/parallel/process/worker_start.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

constexpr double kLimit = 30;
constexpr size_t kMostBytes = 1 << 16;  // a socket takes this much without a reader

[[noreturn]] void fail(const char* what) {
  throw Error("[worker] starting: " + std::string(what) + ": " + std::strerror(errno));
}

void receive_all(int from, void* to, size_t bytes) {
  const TimeLimit limit(kLimit);
  for (size_t done = 0; done < bytes;) {
    pollfd watched{from, POLLIN, 0};
    const int ready = poll(&watched, 1, limit.milliseconds_left());
    if (ready < 0 && errno != EINTR) fail("waiting");
    if (limit.reached()) throw Timeout("[worker] start: no message from the client");
    if (ready <= 0) continue;
    const ssize_t n = read(from, static_cast<std::byte*>(to) + done, bytes - done);
    if (n == 0) throw Error("[worker] start: the client has ended");
    if (n > 0) {
      done += static_cast<size_t>(n);
    } else if (errno != EAGAIN && errno != EINTR) {
      fail("reading");
    }
  }
}

}  // namespace

void send_start(int socket, const Bytes& content) {
  const auto size = static_cast<uint32_t>(content.size());
  if (content.size() > kMostBytes) {
    throw InvalidArgument("[worker] its environment takes more than " + std::to_string(kMostBytes) +
                          " bytes");
  }
  Bytes all(sizeof size + content.size());
  std::memcpy(all.data(), &size, sizeof size);
  std::memcpy(all.data() + sizeof size, content.data(), content.size());
  const ssize_t n = ::send(socket, all.data(), all.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (n != static_cast<ssize_t>(all.size())) fail("writing");
}

Bytes receive_start(int from) {
  uint32_t size = 0;
  receive_all(from, &size, sizeof size);
  if (size > kMostBytes) throw DataError("[worker] start: the message is too long");
  Bytes content(size);
  receive_all(from, content.data(), size);
  return content;
}

}  // namespace lockstep
