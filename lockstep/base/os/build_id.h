// The linker's build id of running code.
#pragma once

#include <string>

namespace lockstep {

// Returns the build id of the executable or shared library that contains `code` (the address of a
// function), in hexadecimal, or "none". Thread-safe.
std::string build_id_of(const void* code);

}  // namespace lockstep
