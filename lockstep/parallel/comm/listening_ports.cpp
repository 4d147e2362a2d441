#include "lockstep/parallel/comm/listening_ports.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace lockstep {
namespace {

thread_local PortRange ports_of_this_thread;

int bind_as_asked(int socket, const sockaddr* address, socklen_t bytes) {
  return static_cast<int>(::syscall(SYS_bind, socket, address, bytes));
}

}  // namespace

ListeningPorts::ListeningPorts(const PortRange& ports) { ports_of_this_thread = ports; }
ListeningPorts::~ListeningPorts() { ports_of_this_thread = {}; }

}  // namespace lockstep

// Replaces the C library's function for this program: the dynamic linker finds this one first.
extern "C" int bind(int socket, const sockaddr* address, socklen_t bytes) noexcept {
  const lockstep::PortRange ports = lockstep::ports_of_this_thread;
  const bool v4 = address != nullptr && address->sa_family == AF_INET;
  const bool v6 = address != nullptr && address->sa_family == AF_INET6;
  const size_t needed = v4 ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  sockaddr_storage own{};
  if (ports.first == 0 || (!v4 && !v6) || bytes < needed || bytes > sizeof own) {
    return lockstep::bind_as_asked(socket, address, bytes);
  }
  std::memcpy(&own, address, bytes);
  in_port_t& port = v4 ? reinterpret_cast<sockaddr_in&>(own).sin_port
                       : reinterpret_cast<sockaddr_in6&>(own).sin6_port;
  if (port != 0) return lockstep::bind_as_asked(socket, address, bytes);
  int result = -1;
  for (int next = ports.first; next <= ports.last; ++next) {
    port = htons(static_cast<in_port_t>(next));
    result = lockstep::bind_as_asked(socket, reinterpret_cast<const sockaddr*>(&own), bytes);
    if (result == 0 || errno != EADDRINUSE) break;
  }
  return result;
}
