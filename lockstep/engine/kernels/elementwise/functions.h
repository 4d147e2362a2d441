// Elementary functions, one source for all processors.
//
// On CPUs they work in double, element by element, with additions, multiplications, divisions and
// fused multiplications alone. Each of these is rounded as IEEE 754 says, so all instruction sets
// and compilers give the same bits, and loops over them are vectorized. For floats as arguments and
// rounded to float, results are at most 0.501 units in the last place from the true value, with the
// limits and the signs of zeros that the C library gives. NaN stays NaN.
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
#define LOCKSTEP_FUNCTION LOCKSTEP_HOST_DEVICE inline

LOCKSTEP_HOST_DEVICE inline Real limited(Real x, Real lowest, Real highest) {
  x = x < lowest ? lowest : x;
  return x > highest ? highest : x;
}
LOCKSTEP_HOST_DEVICE inline Real magnitude(Real x) { return std::fabs(x); }
LOCKSTEP_HOST_DEVICE inline Real exponential(Real x) { return std::exp(x); }
LOCKSTEP_HOST_DEVICE inline Real exponential_of_2(Real x) { return std::exp2(x); }
LOCKSTEP_HOST_DEVICE inline Real exponential_minus_1(Real x) { return std::expm1(x); }
LOCKSTEP_HOST_DEVICE inline Real hyperbolic_tangent(Real x) { return std::tanh(x); }
LOCKSTEP_HOST_DEVICE inline Real logarithm(Real x) { return std::log(x); }
LOCKSTEP_HOST_DEVICE inline Real logarithm_of_1_plus(Real x) { return std::log1p(x); }
LOCKSTEP_HOST_DEVICE inline Real logarithm_of_1_plus_share(Real x) { return std::log1p(x); }
LOCKSTEP_HOST_DEVICE inline Real error_function(Real x) { return std::erf(x); }
LOCKSTEP_HOST_DEVICE inline Real complementary_error(Real x) { return std::erfc(x); }
LOCKSTEP_HOST_DEVICE inline Real sine(Real x) { return std::sin(x); }
LOCKSTEP_HOST_DEVICE inline Real cosine(Real x) { return std::cos(x); }
LOCKSTEP_HOST_DEVICE inline Real power(Real x, Real y) { return std::pow(x, y); }

#else

inline namespace on_cpu {

using Real = double;
#define LOCKSTEP_FUNCTION LOCKSTEP_INLINE

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

// Adding this to a number below 2^51 rounds it to a whole one, which is then in the lowest bits.
inline constexpr double kRoundsToWhole = 6755399441055744.0;  // 1.5 * 2^52

// 2^n e^r = scale + scale * rest, for |r| <= log(2) / 2. whole = n + kRoundsToWhole.
struct Exponential {
  double scale, rest;
  LOCKSTEP_INLINE Exponential(double whole, double r) {
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

// e^x. Beyond +-708, where floats are 0 or infinite, as at +-708.
LOCKSTEP_INLINE Exponential parts_of_exponential(double x) {
  x = limited(x, -708, 708);
  const double whole = __builtin_fma(x, 1.4426950408889634, kRoundsToWhole);
  const double n = whole - kRoundsToWhole;
  // x - n log 2, between -log(2) / 2 and log(2) / 2.
  const double r =
      __builtin_fma(n, -2.3190468138462996e-17, __builtin_fma(n, -0.69314718055994531, x));
  return {whole, r};
}

LOCKSTEP_INLINE double exponential(double x) {
  const Exponential e = parts_of_exponential(x);
  return __builtin_fma(e.scale, e.rest, e.scale);
}

// 2^x. Beyond +-1000 as at +-1000.
LOCKSTEP_INLINE double exponential_of_2(double x) {
  x = limited(x, -1000, 1000);
  const double whole = x + kRoundsToWhole, rest = x - (whole - kRoundsToWhole);
  const Exponential e(whole, rest * 0.69314718055994531);
  return __builtin_fma(e.scale, e.rest, e.scale);
}

LOCKSTEP_INLINE double exponential_minus_1(double x) {
  const Exponential e = parts_of_exponential(x);
  const double found = __builtin_fma(e.scale, e.rest, e.scale - 1);
  return x == 0 ? x : found;  // keeps the sign of 0
}

LOCKSTEP_INLINE double hyperbolic_tangent(double x) {
  const double e = exponential_minus_1(2 * limited(x, -20, 20));
  return e / (e + 2);
}

// x = m 2^n with m between sqrt(1/2) and sqrt(2), for positive x that are not subnormal.
struct Scaled {
  double m, n;
  LOCKSTEP_INLINE explicit Scaled(double x) {
    constexpr uint64_t of_root = 0x3fe6a09e667f3bcd, one = uint64_t{1023} << 52;
    const uint64_t bits = __builtin_bit_cast(uint64_t, x);
    const uint64_t exponent = (bits + (one - of_root)) >> 52;
    m = __builtin_bit_cast(double, bits + one - (exponent << 52));
    // Below 2^52, whole numbers are the lowest bits of what is 2^52 larger.
    constexpr double large = 4503599627370496.0;
    const uint64_t sum = exponent | __builtin_bit_cast(uint64_t, large);
    n = __builtin_bit_cast(double, sum) - (large + 1023);
  }
};

// log(1 + f) for sqrt(1/2) <= 1 + f <= sqrt(2): 2 atanh(z), z = f / (2 + f); relative error 3e-14.
LOCKSTEP_INLINE double logarithm_near_1(double f) {
  const double z = f / (2 + f), w = z * z;
  const double p =
      polynomial(w, 9.804570830458787800e-02, 0.1108708655489558936, 0.1428608406061686321,
                 0.1999999743552537401, 0.3333333333982814173, 0.9999999999999733547);
  return 2 * z * p;
}

// The limits of log(x), where x is not a positive number: log(0) = -infinity.
LOCKSTEP_INLINE double with_limits_of_logarithm(double x, double found) {
  constexpr double infinity = __builtin_inf();
  found = x < infinity ? found : x;  // infinity and NaN
  found = x == 0 ? -infinity : found;
  return x < 0 ? __builtin_nan("") : found;
}

// For floats, also subnormal ones, which are not subnormal in double.
LOCKSTEP_INLINE double logarithm(double x) {
  const Scaled s(x);
  return with_limits_of_logarithm(
      x, __builtin_fma(s.n, 0.69314718055994531, logarithm_near_1(s.m - 1)));
}

// log(1 + x).
LOCKSTEP_INLINE double logarithm_of_1_plus(double x) {
  const double sum = 1 + x;
  const Scaled s(sum);
  // Near 0, 1 + x is rounded and x is exact.
  const double f = s.n == 0 ? x : s.m - 1;
  const double found = __builtin_fma(s.n, 0.69314718055994531, logarithm_near_1(f));
  return x == 0 ? x : with_limits_of_logarithm(sum, found);
}

// log(1 + x) for 0 <= x <= 1: 2 atanh(z), z = x / (2 + x); relative error 3e-12.
LOCKSTEP_INLINE double logarithm_of_1_plus_share(double x) {
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

LOCKSTEP_INLINE double error_function(double x) {
  const double z = magnitude(x), w = z * z;
  // erf(x) / x for x up to 1; relative error 2e-14.
  const double p =
      polynomial(w, -1.044445388382561754e-07, 1.529520496736263219e-06, -1.479292172746626030e-05,
                 1.204604612847192117e-04, -8.547920932222588487e-04, 5.223966745120299689e-03,
                 -2.686616896218235045e-02, 1.128379165767272319e-01, -3.761263890277504740e-01,
                 1.128379167095491686);
  const double found = z < 1 ? z * p : 1 - complementary_error(z);
  return __builtin_copysign(found, x);
}

// x = (n + r) pi / 2 with |r| <= 1/2, for floats. n is known up to a multiple of 4.
struct QuarterTurns {
  double r;
  uint64_t n;
  LOCKSTEP_INLINE explicit QuarterTurns(double x) {
    // 2 / pi, in parts: a float times one of the first two is exact. Of large x, multiplied by a
    // power of two, x is between 2^24 and 2^48, thus whole; then multiples of 4 in 2 / pi times
    // the inverse power do not matter.
    double scale = 1, first = 0x1.45f306ep-1, second = -0x1.b1bbeaep-32;
    double third = 0x1.3f84eafa3ea6ap-61;
    const auto from = [&](double limit, double s, double a, double b, double c)
        __attribute__((always_inline)) {
      const bool is = magnitude(x) >= limit;
      scale = is ? s : scale;
      first = is ? a : first;
      second = is ? b : second;
      third = is ? c : third;
    };
    from(0x1p48, 0x1p-24, -0x1.236377ep-1, 0x1.4a7f09ep-30, -0x1.4170565911f92p-59);
    from(0x1p72, 0x1p-48, 0x1.529fc28p-4, -0x1.505c15ap-33, 0x1.377036d8a5665p-62);
    from(0x1p96, 0x1p-72, 0x1.3abe8fap-3, 0x1.34ddc0ep-32, -0x1.275a99b0ef1bfp-62);
    from(0x1p120, 0x1p-96, 0x1.f534ddcp+0, 0x1.b6c52b4p-33, -0x1.b0ef1bef806bap-62);
    const double at = x * scale;
    constexpr double rounds_to_fours = 4 * kRoundsToWhole;
    double a = at * first, b = at * second;
    a -= (a + rounds_to_fours) - rounds_to_fours;
    b -= (b + rounds_to_fours) - rounds_to_fours;
    const double whole = (a + b) + kRoundsToWhole;
    n = __builtin_bit_cast(uint64_t, whole);
    r = __builtin_fma(at, third, (a - (whole - kRoundsToWhole)) + b);
  }
  // sin(r pi / 2) and cos(r pi / 2); relative errors 5e-15 and 8e-14.
  LOCKSTEP_INLINE double sine() const {
    const double w = r * r;
    return r * polynomial(w, -3.556182870010410299e-06, 1.604291382575424234e-04,
                          -4.681752563726030228e-03, 7.969262615325732601e-02,
                          -6.459640975042297839e-01, 1.570796326794889453);
  }
  LOCKSTEP_INLINE double cosine() const {
    const double w = r * r;
    return polynomial(w, -2.485123169033797943e-05, 9.191622963248584950e-04,
                      -2.086346825954128736e-02, 2.536695071984845784e-01, -1.233700550123163042,
                      1);
  }
  // The sine, turned further by `turns` quarters.
  LOCKSTEP_INLINE double turned(uint64_t turns) const {
    const uint64_t all = n + turns;
    const double found = (all & 1) != 0 ? cosine() : sine();
    return (all & 2) != 0 ? -found : found;
  }
};

LOCKSTEP_INLINE double sine(double x) {
  const double found = QuarterTurns(x).turned(0);
  return x == 0 ? x : found;
}

LOCKSTEP_INLINE double cosine(double x) { return QuarterTurns(x).turned(1); }

// x^y for floats, with the limits and the signs of IEEE 754.
LOCKSTEP_INLINE double power(double x, double y) {
  const double z = magnitude(x);
  const Scaled s(z);
  const double log2 = with_limits_of_logarithm(
      z, __builtin_fma(logarithm_near_1(s.m - 1), 1.4426950408889634, s.n));
  const double size = exponential_of_2(y * log2);
  // Floats of 2^24 and more are even.
  const double half = 0.5 * limited(y, -33554432, 33554432);
  const auto is_whole = [](double a) __attribute__((always_inline)) {
    return a == (a + kRoundsToWhole) - kRoundsToWhole;
  };
  const bool whole = is_whole(2 * half), odd = whole && !is_whole(half);
  const bool negative = __builtin_copysign(1.0, x) < 0;
  double found = negative && odd ? -size : size;
  found = x < 0 && z < __builtin_inf() && !whole ? __builtin_nan("") : found;
  found = x == -1 && magnitude(y) == __builtin_inf() ? 1.0 : found;
  return x == 1 || y == 0 ? 1.0 : found;
}

#endif

// sigmoid(x) and 1 - sigmoid(x), each exact up to two roundings of Real.
struct Logistic {
  Real value, rest;
  LOCKSTEP_FUNCTION explicit Logistic(Real x) {
    const Real e = exponential(-magnitude(x)), large = 1 / (1 + e), small = e * large;
    value = x > 0 ? large : small;
    rest = x > 0 ? small : large;
  }
};

LOCKSTEP_FUNCTION Real logistic(Real x) { return Logistic(x).value; }

// log(1 + e^x).
LOCKSTEP_FUNCTION Real softplus(Real x) {
  const Real above = x > 0 ? x : Real(0);
  return above + logarithm_of_1_plus_share(exponential(-magnitude(x)));
}

}  // namespace on_gpu or on_cpu

}  // namespace lockstep::kernels
