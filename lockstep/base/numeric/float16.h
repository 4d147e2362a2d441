// IEEE 754-2008 binary16: 11 bits of significand, from 2^-24 to 65504.
#pragma once

#include <bit>
#include <cstdint>

#include "lockstep/base/numeric/dtype.h"

namespace lockstep {

struct Float16 {
  uint16_t bits = 0;
};

template <>
struct DTypeOf<Float16> {
  static constexpr DType value = DType::f16;
};

constexpr float to_float(Float16 x) {
  const uint32_t sign = uint32_t{x.bits & 0x8000u} << 16, exponent = x.bits >> 10 & 31u,
                 fraction = x.bits & 0x3ffu;
  if (exponent == 0) {
    const float size = static_cast<float>(fraction) * 0x1p-24f;
    return std::bit_cast<float>(std::bit_cast<uint32_t>(size) | sign);
  }
  const uint32_t wide = exponent == 31 ? 255 : exponent + 127 - 15;
  return std::bit_cast<float>(sign | wide << 23 | fraction << 13);
}

// Rounds to nearest, ties to even. Values that are too large become infinite. NaN stays NaN.
constexpr Float16 to_float16(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  const uint32_t sign = bits >> 16 & 0x8000u, size = bits & 0x7fffffffu;
  const auto made = [&](uint32_t half) { return Float16{static_cast<uint16_t>(sign | half)}; };
  if (size > 0x7f800000u) return made(0x7e00u | (size >> 13 & 0x3ffu));
  if (size >= 0x47800000u) return made(0x7c00u);  // 65536
  if (size < 0x38800000u) {                       // 2^-14: steps of 2^-24 below
    // A float near 0.5 has the same step of 2^-24, so the addition rounds.
    const float sum = std::bit_cast<float>(size) + 0.5f;
    return made(std::bit_cast<uint32_t>(sum) - std::bit_cast<uint32_t>(0.5f));
  }
  const uint32_t rounded = size + 0xfffu + (size >> 13 & 1u);
  return made((rounded >> 13) - ((127u - 15u) << 10));  // may carry to infinity
}

}  // namespace lockstep
