// The linker's build id of what is running.
#pragma once

#include <string>

namespace lockstep {

// Of the executable or shared library that `code` (the address of a function) lies in: hexadecimal,
// or "none". Thread-safe.
std::string build_id_of(const void* code);

}  // namespace lockstep
