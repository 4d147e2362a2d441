// The name of this machine.
#pragma once

#include <string>

namespace lockstep {

// "" if the system does not say. Never throws. Thread-safe.
std::string host_name();

}  // namespace lockstep
