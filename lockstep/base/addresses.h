// Addresses of this machine in its networks.
#pragma once

#include <string>

namespace lockstep {

// The address (as numbers, IPv4 or IPv6) that this machine has towards another, which is given by
// name or number. Nothing is sent there. Throws Error for a name that nobody knows, and where no
// way leads there. Thread-safe.
std::string address_towards(const std::string& host);

}  // namespace lockstep
