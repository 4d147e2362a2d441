// Hosts for tests: network namespaces (network_namespaces(7)) on one bridge. Each has its own
// address, and the bridge is the only connection to the others.
#pragma once

#include <functional>
#include <string>

namespace lockstep::testing {

// Gloo is built without the thread sanitizer, and throws in one thread what it catches in another.
inline bool hosts_are_left_out() {
#if defined(__SANITIZE_THREAD__)
  return true;
#else
  return false;
#endif
}

// Whether the loopback interface has an IPv6 address.
bool has_ipv6();

// The reason why the system does not allow namespaces; "" if it does.
std::string why_no_network();

// The address of a host, counted from 0.
std::string address_of(int host);

// Runs body(host) in one process for each host. Returns how many threw or could not run. At most
// 100 hosts.
int on_network(int hosts, const std::function<void(int)>& body);

// In a host: stops sending to another host, and starts again.
void shun(int other);
void unshun(int other);
// In a host: disconnects it without notice to any process, and connects it again.
void pull_cable(int host);
void plug_cable(int host);

}  // namespace lockstep::testing
