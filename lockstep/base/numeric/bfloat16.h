// bfloat16: the upper half of a float, with 8 bits of significand.
#pragma once

#include <bit>
#include <cstdint>

#include "lockstep/base/numeric/dtype.h"

namespace lockstep {

struct BFloat16 {
  uint16_t bits = 0;
};

template <>
struct DTypeOf<BFloat16> {
  static constexpr DType value = DType::bf16;
};

constexpr float to_float(float x) { return x; }  // for code that handles both types
constexpr float to_float(BFloat16 x) { return std::bit_cast<float>(uint32_t{x.bits} << 16); }

// Rounds to nearest, ties to even. NaN stays NaN.
constexpr BFloat16 to_bfloat16(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  const uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1)) >> 16;
  const uint32_t quiet = bits >> 16 | 0x40u;
  return {static_cast<uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded)};
}

}  // namespace lockstep
