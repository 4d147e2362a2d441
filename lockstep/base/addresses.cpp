#include "lockstep/base/addresses.h"

#include <netdb.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "lockstep/base/descriptor.h"
#include "lockstep/base/error.h"

namespace lockstep {

std::string address_towards(const std::string& host) {
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_DGRAM;
  addrinfo* list = nullptr;
  if (const int error = getaddrinfo(host.c_str(), "9", &wanted, &list); error != 0) {
    throw Error("[network] " + host + ": " + gai_strerror(error));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> all(list, &freeaddrinfo);
  int why = 0;
  for (const addrinfo* a = list; a != nullptr; a = a->ai_next) {
    // Connecting a datagram socket asks the routing table, and sends nothing.
    const Descriptor socket(::socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, 0));
    sockaddr_storage own{};
    socklen_t bytes = sizeof own;
    char text[NI_MAXHOST];
    if (socket && connect(socket.get(), a->ai_addr, a->ai_addrlen) == 0 &&
        getsockname(socket.get(), reinterpret_cast<sockaddr*>(&own), &bytes) == 0 &&
        getnameinfo(reinterpret_cast<sockaddr*>(&own), bytes, text, sizeof text, nullptr, 0,
                    NI_NUMERICHOST) == 0) {
      return text;
    }
    why = errno;
  }
  throw Error("[network] no way leads to " + host + ": " + std::strerror(why));
}

}  // namespace lockstep
