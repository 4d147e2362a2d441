// Elementary functions in double, for arguments that floats or sums of floats are. Rounded to
// float, results are at most 0.501 units in the last place from the true value, with the limits and
// the signs of zeros that the C library gives. NaN stays NaN. See functions.h.
#pragma once

#include "lockstep/engine/kernels/elementwise/arithmetic.h"

namespace lockstep::kernels {
inline namespace LOCKSTEP_FUNCTIONS_OF_PROCESSOR {
namespace in_double {

inline constexpr double kInfinity = __builtin_inf(), kNan = __builtin_nan("");
// Adding this to a number below 2^51 rounds it to a whole one, which is then in the lowest bits.
inline constexpr double kRoundsToWhole = 6755399441055744.0;  // 1.5 * 2^52

// 2^n e^r = scale + scale * rest, for |r| <= log(2) / 2. whole = n + kRoundsToWhole.
struct Exponential {
  double scale, rest;
  LOCKSTEP_FUNCTION Exponential(double whole, double r) {
    // (e^r - 1) / r, by interpolation at Chebyshev's points; relative error 5e-12.
    const double p =
        polynomial(r, 2.486787017968772614e-05, 1.99075693108482892e-04, 1.38888391105720083e-03,
                   8.333283538708527024e-03, 4.166666678626573433e-02, 1.66666667863085862e-01,
                   4.999999999995510675e-01, 9.999999999955090405e-01);
    rest = p * r;
    const uint64_t exponent = (bits_of(whole) + 1023) << 52;
    scale = number_of(exponent);
  }
};

// e^x. Beyond +-708, where floats are 0 or infinite, as at +-708.
LOCKSTEP_FUNCTION Exponential parts_of_exponential(double x) {
  x = limited(x, -708.0, 708.0);
  const double whole = fused(x, 1.4426950408889634, kRoundsToWhole);
  const double n = whole - kRoundsToWhole;
  // x - n log 2, between -log(2) / 2 and log(2) / 2.
  const double r = fused(n, -2.3190468138462996e-17, fused(n, -0.69314718055994531, x));
  return {whole, r};
}

LOCKSTEP_FUNCTION double exponential(double x) {
  const Exponential e = parts_of_exponential(x);
  return fused(e.scale, e.rest, e.scale);
}

// 2^x. Beyond +-1000 as at +-1000.
LOCKSTEP_FUNCTION double exponential_of_2(double x) {
  x = limited(x, -1000.0, 1000.0);
  const double whole = x + kRoundsToWhole, rest = x - (whole - kRoundsToWhole);
  const Exponential e(whole, rest * 0.69314718055994531);
  return fused(e.scale, e.rest, e.scale);
}

LOCKSTEP_FUNCTION double exponential_minus_1(double x) {
  const Exponential e = parts_of_exponential(x);
  const double found = fused(e.scale, e.rest, e.scale - 1);
  return x == 0 ? x : found;  // keeps the sign of 0
}

LOCKSTEP_FUNCTION double hyperbolic_tangent(double x) {
  const double e = exponential_minus_1(2 * limited(x, -20.0, 20.0));
  return e / (e + 2);
}

// x = m 2^n with m between sqrt(1/2) and sqrt(2), for positive x that are not subnormal.
struct Scaled {
  double m, n;
  LOCKSTEP_FUNCTION explicit Scaled(double x) {
    constexpr uint64_t of_root = 0x3fe6a09e667f3bcd, one = uint64_t{1023} << 52;
    const uint64_t bits = bits_of(x);
    const uint64_t exponent = (bits + (one - of_root)) >> 52;
    m = number_of(bits + one - (exponent << 52));
    // Below 2^52, whole numbers are the lowest bits of what is 2^52 larger.
    constexpr double large = 4503599627370496.0;
    const uint64_t sum = exponent | bits_of(large);
    n = number_of(sum) - (large + 1023);
  }
};

// log(1 + f) for sqrt(1/2) <= 1 + f <= sqrt(2): 2 atanh(z), z = f / (2 + f); relative error 3e-14.
LOCKSTEP_FUNCTION double logarithm_near_1(double f) {
  const double z = f / (2 + f), w = z * z;
  const double p =
      polynomial(w, 9.804570830458787800e-02, 0.1108708655489558936, 0.1428608406061686321,
                 0.1999999743552537401, 0.3333333333982814173, 0.9999999999999733547);
  return 2 * z * p;
}

// For floats, also subnormal ones, which are not subnormal in double.
LOCKSTEP_FUNCTION double logarithm(double x) {
  const Scaled s(x);
  return with_limits_of_logarithm(x, fused(s.n, 0.69314718055994531, logarithm_near_1(s.m - 1)));
}

// The logarithm of base 2, exact for powers of two.
LOCKSTEP_FUNCTION double logarithm_of_base_2(double x) {
  const Scaled s(x);
  return with_limits_of_logarithm(x, fused(logarithm_near_1(s.m - 1), 1.4426950408889634, s.n));
}

// log(1 + x).
LOCKSTEP_FUNCTION double logarithm_of_1_plus(double x) {
  const double sum = 1 + x;
  const Scaled s(sum);
  // Near 0, 1 + x is rounded and x is exact.
  const double f = s.n == 0 ? x : s.m - 1;
  const double found = fused(s.n, 0.69314718055994531, logarithm_near_1(f));
  return x == 0 ? x : with_limits_of_logarithm(sum, found);
}

// log(1 + x) for 0 <= x <= 1: 2 atanh(z), z = x / (2 + x); relative error 3e-12.
LOCKSTEP_FUNCTION double logarithm_of_1_plus_share(double x) {
  const double z = x / (2 + x), w = z * z;
  const double p =
      polynomial(w, 1.093028415715348047e-01, 8.561268333645094059e-02, 1.115256369279147771e-01,
                 1.428407287910054428e-01, 2.000003071060397051e-01, 3.333333311896087242e-01,
                 1.000000000002432973);
  return 2 * z * p;
}

// 1 - erf(z), and e^(-z^2), for z >= 0. Beyond 11, where both are 0 in float, as at 11.
struct ErrorTail {
  double tail, bell;
  LOCKSTEP_FUNCTION explicit ErrorTail(double z) {
    z = at_most(11.0, z);
    const double t = 1 / (1 + 0.5 * z);
    // e^(z^2) (1 - erf(z)), as a polynomial of t; relative error 8e-11.
    const double p =
        polynomial(t, -0.03450540618111816, 0.2551975648173719, -0.8097820244742497,
                   1.401167601728875, -1.3796602779020173, 0.7709743472929387, -0.36513691045536084,
                   0.1956378750874324, 0.15168452186616735, 0.2505880965547543, 0.2817180976153442,
                   0.2821171039330056, -5.89958648742369e-07);
    bell = exponential(-z * z);
    tail = bell * p;
  }
};

LOCKSTEP_FUNCTION double complementary_error(double x) {
  const double tail = ErrorTail(magnitude(x)).tail;
  return x < 0 ? 2 - tail : tail;
}

LOCKSTEP_FUNCTION double error_function(double x) {
  const double z = magnitude(x), w = z * z;
  // erf(x) / x for x up to 1; relative error 2e-14.
  const double p =
      polynomial(w, -1.044445388382561754e-07, 1.529520496736263219e-06, -1.479292172746626030e-05,
                 1.204604612847192117e-04, -8.547920932222588487e-04, 5.223966745120299689e-03,
                 -2.686616896218235045e-02, 1.128379165767272319e-01, -3.761263890277504740e-01,
                 1.128379167095491686);
  const double found = z < 1 ? z * p : 1 - complementary_error(z);
  return with_sign_of(x, found);
}

// x = (n + r) pi / 2 with |r| <= 1/2, for floats. n is known up to a multiple of 4.
struct QuarterTurns {
  double r;
  uint64_t n;
  LOCKSTEP_FUNCTION explicit QuarterTurns(double x) {
    // 2 / pi, in parts: a float times one of the first two is exact. Of a large x, x times a power
    // of two is between 2^24 and 2^52, thus whole; multiples of 4 in 2 / pi times the inverse of
    // that power then do not matter. The parts are multiplied by the power.
    double first = 0x1.45f306ep-1, second = -0x1.b1bbeaep-32, third = 0x1.3f84eafa3ea6ap-61;
    const auto from = [&](double limit, double a, double b, double c)
        __attribute__((always_inline)) {
      const bool is = magnitude(x) >= limit;
      first = is ? a : first;
      second = is ? b : second;
      third = is ? c : third;
    };
    from(0x1p52, -0x1.1b1bbeap-28, -0x1.ac07b16p-57, 0x1.f47d4d377036ep-86);
    from(0x1p80, 0x1.29fc276p-56, -0x1.05c1596p-85, -0x1.11f924eb53362p-115);
    from(0x1p108, 0x1.7d1f534p-84, 0x1.bb81b6cp-113, 0x1.4acc9e21c8210p-143);
    constexpr double rounds_to_fours = 4 * kRoundsToWhole;
    double a = x * first, b = x * second;
    a -= (a + rounds_to_fours) - rounds_to_fours;
    b -= (b + rounds_to_fours) - rounds_to_fours;
    const double whole = (a + b) + kRoundsToWhole;
    n = bits_of(whole);
    r = fused(x, third, (a - (whole - kRoundsToWhole)) + b);
  }
  // sin(r pi / 2) and cos(r pi / 2); relative errors 5e-15 and 8e-14.
  LOCKSTEP_FUNCTION double sine() const {
    const double w = r * r;
    return r * polynomial(w, -3.556182870010410299e-06, 1.604291382575424234e-04,
                          -4.681752563726030228e-03, 7.969262615325732601e-02,
                          -6.459640975042297839e-01, 1.570796326794889453);
  }
  LOCKSTEP_FUNCTION double cosine() const {
    const double w = r * r;
    return polynomial(w, -2.485123169033797943e-05, 9.191622963248584950e-04,
                      -2.086346825954128736e-02, 2.536695071984845784e-01, -1.233700550123163042,
                      1.0);
  }
  // The sine, turned further by `turns` quarters.
  LOCKSTEP_FUNCTION double turned(uint64_t turns) const {
    const uint64_t all = n + turns;
    const double found = (all & 1) != 0 ? cosine() : sine();
    return (all & 2) != 0 ? -found : found;
  }
};

LOCKSTEP_FUNCTION double sine(double x) {
  const double found = QuarterTurns(x).turned(0);
  return x == 0 ? x : found;
}

LOCKSTEP_FUNCTION double cosine(double x) { return QuarterTurns(x).turned(1); }

LOCKSTEP_FUNCTION double tangent(double x) {
  const QuarterTurns turns(x);
  const double sine = turns.sine(), cosine = turns.cosine();
  const bool odd = (turns.n & 1) != 0;
  const double found = (odd ? -cosine : sine) / (odd ? sine : cosine);
  return x == 0 ? x : found;
}

// x^y for floats, with the limits and the signs of IEEE 754.
LOCKSTEP_FUNCTION double power(double x, double y) {
  const double z = magnitude(x);
  const double size = exponential_of_2(y * logarithm_of_base_2(z));
  // Floats of 2^24 and more are even.
  const double half = 0.5 * limited(y, -33554432.0, 33554432.0);
  const auto is_whole = [](double a) __attribute__((always_inline)) {
    return a == (a + kRoundsToWhole) - kRoundsToWhole;
  };
  const bool whole = is_whole(2 * half), odd = whole && !is_whole(half);
  const bool negative = with_sign_of(x, 1.0) < 0;
  double found = negative && odd ? -size : size;
  found = x < 0 && z < kInfinity && !whole ? kNan : found;
  found = x == -1 && magnitude(y) == kInfinity ? 1.0 : found;
  return x == 1 || y == 0 ? 1.0 : found;
}

// sigmoid(x) and 1 - sigmoid(x), each exact up to two roundings of double.
struct Logistic {
  double value, rest;
  LOCKSTEP_FUNCTION explicit Logistic(double x) {
    const double e = exponential(-magnitude(x)), large = 1 / (1 + e), small = e * large;
    value = x > 0 ? large : small;
    rest = x > 0 ? small : large;
  }
};

LOCKSTEP_FUNCTION double logistic(double x) { return Logistic(x).value; }

// log(1 + e^x).
LOCKSTEP_FUNCTION double softplus(double x) {
  const double above = x > 0 ? x : 0.0;
  return above + logarithm_of_1_plus_share(exponential(-magnitude(x)));
}

}  // namespace in_double
}  // namespace LOCKSTEP_FUNCTIONS_OF_PROCESSOR
}  // namespace lockstep::kernels
