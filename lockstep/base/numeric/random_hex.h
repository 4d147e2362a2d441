// Random names and secrets.
#pragma once

#include <string>

namespace lockstep {

// Returns `words` random 32-bit numbers of the system (std::random_device) as 8 hexadecimal digits
// each. Throws std::runtime_error if the system has none. Thread-safe.
std::string random_hex(int words);

}  // namespace lockstep
