// Hosts for tests: network namespaces (network_namespaces(7)) on one bridge, each with an address
// of its own and no way to the others but that.
#pragma once

#include <functional>
#include <string>

namespace lockstep::testing {

// Gloo is built without the thread sanitizer, and throws from thread to thread.
inline bool hosts_are_left_out() {
#if defined(__SANITIZE_THREAD__)
  return true;
#else
  return false;
#endif
}

// Whether the loopback has an address of IPv6.
bool has_ipv6();

// Why there can be none here; "": there can.
std::string why_no_network();

// The address of a host, from 0.
std::string address_of(int host);

// Runs body(host) in a process of each; returns how many threw, or could not be run. At most 100.
int on_network(int hosts, const std::function<void(int)>& body);

// In a host: sends nothing to another any more. And again.
void shun(int other);
void unshun(int other);
// In a host: pulls its cable; nothing comes or goes any more, and nobody is told. And back.
void pull_cable(int host);
void plug_cable(int host);

}  // namespace lockstep::testing
