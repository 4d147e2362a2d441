// Sequences of bytes: encoded values, messages, contents of files.
#pragma once

#include <cstddef>
#include <vector>

namespace lockstep {

using Bytes = std::vector<std::byte>;

}  // namespace lockstep
