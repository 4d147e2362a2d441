// Network addresses of this machine.
#pragma once

#include <string>

namespace lockstep {

// Returns the numeric address (IPv4 or IPv6) that this machine uses to reach `host`, a name or
// number. Sends nothing to `host`. Throws Error if the name is unknown or there is no route.
// Thread-safe.
std::string address_towards(const std::string& host);

// Returns the network interface (for example "eth0") that has the address, in the form that
// address_towards() returns. Throws Error if no interface has it. Thread-safe.
std::string interface_of(const std::string& address);

}  // namespace lockstep
