#include "lockstep/base/os/addresses.h"

#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

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

namespace {

struct InterfaceAddress {
  std::string interface, address;
  bool v4 = false;
};

std::vector<InterfaceAddress> interface_addresses() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) {
    throw Error(std::string("[network] the network interfaces cannot be listed: ") +
                std::strerror(errno));
  }
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owned(list, &freeifaddrs);
  std::vector<InterfaceAddress> all;
  for (const ifaddrs* i = list; i != nullptr; i = i->ifa_next) {
    const int family = i->ifa_addr == nullptr ? AF_UNSPEC : i->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    const size_t bytes = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    char text[NI_MAXHOST];
    if (getnameinfo(i->ifa_addr, static_cast<socklen_t>(bytes), text, sizeof text, nullptr, 0,
                    NI_NUMERICHOST) == 0) {
      all.push_back({i->ifa_name, text, family == AF_INET});
    }
  }
  return all;
}

}  // namespace

std::string address_of_interface(const std::string& interface) {
  std::string found, names;
  for (const InterfaceAddress& a : interface_addresses()) {
    names += (names.empty() ? "" : ", ") + a.interface + " " + a.address;
    if (a.interface != interface) continue;
    if (a.v4) return a.address;
    if (found.empty()) found = a.address;
  }
  if (!found.empty()) return found;
  throw InvalidArgument("[network] there is no interface " + interface + " with an address", names);
}

std::string own_address_towards(const std::string& host) {
  const char* const interface = std::getenv("LOCKSTEP_INTERFACE");
  if (interface != nullptr && *interface != 0) return address_of_interface(interface);
  return address_towards(host);
}

PortRange parse_ports(const std::string& text, const std::string& where) {
  constexpr int kMostPort = 65535;
  PortRange ports;
  if (text.empty()) return ports;
  const char* const end = text.data() + text.size();
  auto [at, error] = std::from_chars(text.data(), end, ports.first);
  ports.last = ports.first;
  if (error == std::errc() && at != end && *at == '-') {
    const auto [last, wrong] = std::from_chars(at + 1, end, ports.last);
    at = last;
    error = wrong;
  }
  if (error != std::errc() || at != end || ports.first < 1 || ports.last < ports.first ||
      ports.last > kMostPort) {
    throw InvalidArgument("[network] " + where + " is not a range of ports: " + text,
                          "for example 20000-20100");
  }
  return ports;
}

PortRange ports_to_use() {
  const char* const given = std::getenv("LOCKSTEP_PORTS");
  return parse_ports(given ? given : "", "LOCKSTEP_PORTS");
}

std::string interface_of(const std::string& address) {
  for (const InterfaceAddress& a : interface_addresses()) {
    if (a.address == address) return a.interface;
  }
  throw Error("[network] no interface of this machine has the address " + address);
}

}  // namespace lockstep
