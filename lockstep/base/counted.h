// Numbers of things, in messages.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep {

// "1 class", "12 classes". Without `more`, the plural is `one` with an s.
inline std::string counted(int64_t count, const std::string& one, const std::string& more = {}) {
  return std::to_string(count) + " " + (count == 1 ? one : more.empty() ? one + "s" : more);
}

}  // namespace lockstep
