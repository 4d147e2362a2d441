// Sizes of memory that is shared among threads or processes.
#pragma once

#include <cstddef>

namespace lockstep {

// Bytes that processors take from each other at a time.
inline constexpr size_t cache_line = 64;

// The smallest multiple of `unit` (at least 1) that is not below `bytes`.
constexpr size_t round_up(size_t bytes, size_t unit = cache_line) {
  return (bytes + unit - 1) / unit * unit;
}

}  // namespace lockstep
