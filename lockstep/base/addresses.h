// Addresses of this machine in its networks.
#pragma once

#include <string>

namespace lockstep {

// The address (as numbers, IPv4 or IPv6) that this machine has towards another, which is given by
// name or number. Nothing is sent there. Throws Error for a name that nobody knows, and where no
// way leads there. Thread-safe.
std::string address_towards(const std::string& host);

// The network interface ("eth0") that has an address of this machine, as address_towards() gives
// it. Throws Error where none has. Thread-safe.
std::string interface_of(const std::string& address);

}  // namespace lockstep
