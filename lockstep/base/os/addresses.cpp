#include "lockstep/base/os/addresses.h"

#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "lockstep/base/error.h"
#include "lockstep/base/os/descriptor.h"

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
    // connect() on a datagram socket looks up the route and sends nothing.
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
  throw Error("[network] there is no route to " + host + ": " + std::strerror(why));
}

std::string interface_of(const std::string& address) {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) {
    throw Error(std::string("[network] the network interfaces cannot be listed: ") +
                std::strerror(errno));
  }
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> all(list, &freeifaddrs);
  for (const ifaddrs* i = list; i != nullptr; i = i->ifa_next) {
    const int family = i->ifa_addr == nullptr ? AF_UNSPEC : i->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    const size_t bytes = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    char text[NI_MAXHOST];
    if (getnameinfo(i->ifa_addr, static_cast<socklen_t>(bytes), text, sizeof text, nullptr, 0,
                    NI_NUMERICHOST) == 0 &&
        address == text) {
      return i->ifa_name;
    }
  }
  throw Error("[network] no interface of this machine has the address " + address);
}

}  // namespace lockstep
