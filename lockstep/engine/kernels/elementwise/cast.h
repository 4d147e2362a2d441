// Elements as another type.
#pragma once

#include <cstdint>
#include <limits>
#include <type_traits>

#include "lockstep/engine/kernels/interface/host_device.h"
#include "lockstep/engine/kernels/interface/kernel.h"

namespace lockstep::kernels {

// dst: src's shape, of type `to`. f32, i32, i64 and u8, in any combination. Integers become the
// nearest float, halves to even. Floats are cut toward zero and NaN becomes 0; what an integer type
// does not hold becomes its nearest number.
struct CastProblem {
  TensorSpec src;
  DType to = DType::f32;
};
// A forward pass alone.

// Names that devices may read.
template <class T>
inline constexpr T kLeastNumber = std::numeric_limits<T>::lowest();
template <class T>
inline constexpr T kMostNumber = std::numeric_limits<T>::max();

template <class To, class From>
LOCKSTEP_HOST_DEVICE inline To cast_to(From x) {
  if constexpr (std::is_same_v<To, float> || std::is_same_v<To, From>) {
    return static_cast<To>(x);
  } else if constexpr (std::is_same_v<From, float>) {
    // The largest number of a type may not be a float: the next one is a power of two.
    constexpr float kLeast = static_cast<float>(kLeastNumber<To>),
                    kAbove = static_cast<float>(kMostNumber<To> / 2 + 1) * 2;
    if (!(x > kLeast)) return x != x ? To{0} : kLeastNumber<To>;
    return x < kAbove ? static_cast<To>(x) : kMostNumber<To>;
  } else {
    // Each type holds the numbers of i64 or is narrower.
    const auto wide = static_cast<int64_t>(x);
    if (wide < static_cast<int64_t>(kLeastNumber<To>)) return kLeastNumber<To>;
    if (wide > static_cast<int64_t>(kMostNumber<To>)) return kMostNumber<To>;
    return static_cast<To>(wide);
  }
}

}  // namespace lockstep::kernels
