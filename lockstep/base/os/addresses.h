// Network addresses of this machine.
#pragma once

#include <string>

namespace lockstep {

// Returns the numeric address (IPv4 or IPv6) that this machine uses to reach `host`, a name or
// number. Sends nothing to `host`. Throws Error if the name is unknown or there is no route.
// Thread-safe.
std::string address_towards(const std::string& host);

// Returns the first address of a network interface, IPv4 if it has one. Throws InvalidArgument,
// with the names of all interfaces as the hint, if there is none of this name or it has no address.
// Thread-safe.
std::string address_of_interface(const std::string& interface);

// The address of this machine for those who reach it as `host` is reached: of the interface that
// the variable LOCKSTEP_INTERFACE names, otherwise address_towards(host). Throws what those throw.
std::string own_address_towards(const std::string& host);

// A range of ports; 0: any.
struct PortRange {
  int first = 0, last = 0;
};
// The range that a text names, "20000-20100" or "20000"; "": any. Throws InvalidArgument, which
// names `where`, for other text.
PortRange parse_ports(const std::string& text, const std::string& where);
// The ports to listen at by the variable LOCKSTEP_PORTS; any if it is not set. Throws what
// parse_ports() throws.
PortRange ports_to_use();

// Returns the network interface (for example "eth0") that has the address, in the form that
// address_towards() returns. Throws Error if no interface has it. Thread-safe.
std::string interface_of(const std::string& address);

}  // namespace lockstep
