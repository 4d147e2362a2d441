// Sizes for memory that threads or processes share.
#pragma once

#include <cstddef>

namespace lockstep {

// The unit, in bytes, in which processors exchange memory.
inline constexpr size_t cache_line = 64;

// The smallest multiple of `unit` (at least 1) that is >= `bytes`.
constexpr size_t round_up(size_t bytes, size_t unit = cache_line) {
  return (bytes + unit - 1) / unit * unit;
}

}  // namespace lockstep
