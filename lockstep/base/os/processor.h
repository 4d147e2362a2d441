// The kind of this machine's processor.
#pragma once

#include <string>

namespace lockstep {

// The vendor's name of itself, such as "AuthenticAMD"; "unknown" if the processor does not tell.
// Thread-safe.
std::string processor_vendor();

// Family and model in the vendors' notation, base plus extended parts, such as "family 25 model
// 17". Thread-safe.
std::string processor_model();

}  // namespace lockstep
