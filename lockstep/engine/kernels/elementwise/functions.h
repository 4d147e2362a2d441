// Elementary functions, one source for all processors.
//
// On CPUs they work in double, element by element, with additions, multiplications, divisions and
// fused multiplications alone. Each of these is rounded as IEEE 754 says, so all instruction sets
// and compilers give the same bits, and loops over them are vectorized. Rounded to float, results
// are at most 0.501 units in the last place from the true value. NaN stays NaN.
//
// On GPUs they are CUDA's functions of float, because most GPUs have few units for double.
#pragma once

#include <cmath>
#include <cstdint>

#include "lockstep/base/numeric/clones.h"
#include "lockstep/engine/kernels/interface/host_device.h"

namespace lockstep::kernels {

#if defined(__CUDACC__) || defined(LOCKSTEP_CUDA_EMULATION)

inline namespace on_gpu {

using Real = float;

LOCKSTEP_HOST_DEVICE inline Real limited(Real x, Real lowest, Real highest) {
  x = x < lowest ? lowest : x;
  return x > highest ? highest : x;
}
LOCKSTEP_HOST_DEVICE inline Real magnitude(Real x) { return std::fabs(x); }
LOCKSTEP_HOST_DEVICE inline Real exponential(Real x) { return std::exp(x); }
LOCKSTEP_HOST_DEVICE inline Real exponential_minus_1(Real x) { return std::expm1(x); }
LOCKSTEP_HOST_DEVICE inline Real hyperbolic_tangent(Real x) { return std::tanh(x); }
LOCKSTEP_HOST_DEVICE inline Real logarithm_of_1_plus(Real x) { return std::log1p(x); }
LOCKSTEP_HOST_DEVICE inline Real complementary_error(Real x) { return std::erfc(x); }

}  // namespace on_gpu

#else

inline namespace on_cpu {

using Real = double;

// NaN stays NaN.
LOCKSTEP_INLINE double limited(double x, double lowest, double highest) {
  x = x < lowest ? lowest : x;
  return x > highest ? highest : x;
}

LOCKSTEP_INLINE double magnitude(double x) { return __builtin_fabs(x); }

// By Horner's scheme; the coefficient of the highest power comes first.
template <class... Others>
LOCKSTEP_INLINE double polynomial(double x, double first, Others... others) {
  double sum = first;
  ((sum = __builtin_fma(sum, x, others)), ...);
  return sum;
}

// e^x = scale + scale * rest. Beyond +-708, where floats are 0 or infinite, as at +-708.
struct Exponential {
  double scale, rest;
  LOCKSTEP_INLINE explicit Exponential(double x) {
    x = limited(x, -708, 708);
    // Adding this rounds to a whole number, which is then in the lowest bits.
    constexpr double rounds = 6755399441055744.0;  // 1.5 * 2^52
    const double whole = __builtin_fma(x, 1.4426950408889634, rounds), n = whole - rounds;
    // x - n log 2, between -log(2) / 2 and log(2) / 2.
    const double r =
        __builtin_fma(n, -2.3190468138462996e-17, __builtin_fma(n, -0.69314718055994531, x));
    // (e^r - 1) / r, by interpolation at Chebyshev's points; relative error 5e-12.
    const double p =
        polynomial(r, 2.486787017968772614e-05, 1.99075693108482892e-04, 1.38888391105720083e-03,
                   8.333283538708527024e-03, 4.166666678626573433e-02, 1.66666667863085862e-01,
                   4.999999999995510675e-01, 9.999999999955090405e-01);
    rest = p * r;
    const uint64_t exponent = (__builtin_bit_cast(uint64_t, whole) + 1023) << 52;
    scale = __builtin_bit_cast(double, exponent);
  }
};

LOCKSTEP_INLINE double exponential(double x) {
  const Exponential e(x);
  return __builtin_fma(e.scale, e.rest, e.scale);
}

LOCKSTEP_INLINE double exponential_minus_1(double x) {
  const Exponential e(x);
  return __builtin_fma(e.scale, e.rest, e.scale - 1);
}

LOCKSTEP_INLINE double hyperbolic_tangent(double x) {
  const double e = exponential_minus_1(2 * limited(x, -20, 20));
  return e / (e + 2);
}

// log(1 + x) for 0 <= x <= 1: 2 atanh(z), z = x / (2 + x); relative error 3e-12.
LOCKSTEP_INLINE double logarithm_of_1_plus(double x) {
  const double z = x / (2 + x), w = z * z;
  const double p =
      polynomial(w, 1.093028415715348047e-01, 8.561268333645094059e-02, 1.115256369279147771e-01,
                 1.428407287910054428e-01, 2.000003071060397051e-01, 3.333333311896087242e-01,
                 1.000000000002432973);
  return 2 * z * p;
}

// 1 - erf(x) = t e^(-x^2 + p(t)), t = 1 / (1 + |x| / 2), for x >= 0; relative error 3e-11.
LOCKSTEP_INLINE double complementary_error(double x) {
  const double z = magnitude(x), t = 1 / (1 + 0.5 * z);
  const double p =
      polynomial(t, -1.770136535165625089e-01, 1.411844353327181383, -4.931268609073090355,
                 9.783102041873584344, -11.92771850459665527, 9.054266585064546377,
                 -4.28746868008984016, 1.440798112122816911, -3.358491508890481058e-01,
                 -1.487593433423321898e-01, -7.136582478467003046e-02, 7.945087326948490979e-02,
                 3.755317605770486964e-01, 9.999609438985807144e-01, -1.265510903861502964);
  const double tail = t * exponential(__builtin_fma(-z, z, p));
  return x < 0 ? 2 - tail : tail;
}

}  // namespace on_cpu

#endif

}  // namespace lockstep::kernels
