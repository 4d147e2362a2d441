// Elementary functions of floats, one source for CPUs and GPUs: the same bits on all instruction
// sets, compilers and C libraries (arithmetic.h). Results are less than 1 unit in the last place
// from the true value, with the limits and the signs of zeros that the C library gives. NaN stays
// NaN. Whether subnormal arguments and results are kept or are 0 is up to the mode of arithmetic.
//
// Most work in float, with what a rounding lost kept in a second float where it matters. The rest
// works in double (double_functions.h).
#pragma once

#include "lockstep/engine/kernels/elementwise/arithmetic.h"
#include "lockstep/engine/kernels/elementwise/double_functions.h"

namespace lockstep::kernels {
inline namespace LOCKSTEP_FUNCTIONS_OF_PROCESSOR {

// high + low, where high is the nearest float.
struct FloatPair {
  float high, low;
};

// The sum of a and b, for |a| >= |b| or a = 0.
LOCKSTEP_FUNCTION FloatPair sum_of(float a, float b) {
  const float high = a + b;
  return {high, (a - high) + b};
}
LOCKSTEP_FUNCTION FloatPair product_of(const FloatPair& a, const FloatPair& b) {
  const float high = a.high * b.high;
  const float low = fused(a.high, b.high, -high);
  return {high, fused(a.high, b.low, fused(a.low, b.high, low))};
}

// Whether x > limit > 0, or x is a positive NaN. By bits, because compilers combine comparisons of
// numbers to slower loops.
LOCKSTEP_FUNCTION bool is_above(float x, float limit) {
  return static_cast<int32_t>(bits_of(x)) > static_cast<int32_t>(bits_of(limit));
}

// Adding this to a number below 2^21 rounds it to a whole one, which is then in the lowest bits.
inline constexpr float kRoundsToWhole = 12582912.0f;  // 1.5 * 2^23

// log 2, in parts: whole numbers below 2^8 times the first are exact.
inline constexpr float kLog2 = 0.693145751953125f, kLog2Rest = 1.428606765330187e-06f;

// 2^n for -127 < n < 128.
LOCKSTEP_FUNCTION float power_of_2(int32_t n) {
  return number_of(static_cast<uint32_t>(n + 127) << 23);
}

// m 2^n for -252 < n < 256, rounded once also if it is subnormal.
LOCKSTEP_FUNCTION float times_power_of_2(float m, int32_t n) {
  const int32_t half = n >> 1;
  return m * power_of_2(half) * power_of_2(n - half);
}

// The same for -190 < n < 64, with fewer operations.
LOCKSTEP_FUNCTION float times_small_power_of_2(float m, int32_t n) {
  return m * power_of_2(n + 64) * 0x1p-64f;
}

// x at most `limit`, for x >= 0; also for NaN. By bits, see is_above().
LOCKSTEP_FUNCTION float size_at_most(float limit, float x) {
  const uint32_t bits = bits_of(x), most = bits_of(limit);
  return number_of(bits < most ? bits : most);
}

// 2^n e^r = 2^n (1 + r + rest), for |r| <= log(2) / 2.
struct Exponential {
  float r, rest;
  int32_t n;
  // whole = n + kRoundsToWhole. `low` is what rounding r lost.
  LOCKSTEP_FUNCTION Exponential(float whole, float near, float low)
      : r(near), n(static_cast<int32_t>(bits_of(whole) - bits_of(kRoundsToWhole))) {
    const float p = polynomial(r, 1.99394752e-04f, 1.39333692e-03f, 8.33321270e-03f,
                               4.16664816e-02f, 1.66666672e-01f, 0.5f);
    rest = fused(r * r, p, fused(low, r, low));
  }
  // e^r - 1 and e^r.
  LOCKSTEP_FUNCTION FloatPair minus_1() const { return sum_of(r, rest); }
  LOCKSTEP_FUNCTION FloatPair value() const {
    const FloatPair sum = sum_of(1.0f, r);
    return sum_of(sum.high, sum.low + rest);
  }
};

// e^x, for |x| < 176.
LOCKSTEP_FUNCTION Exponential parts_of_exponential(float x) {
  const float whole = fused(x, 1.44269504f, kRoundsToWhole), n = whole - kRoundsToWhole;
  const float near = fused(n, -kLog2, x), r = fused(n, -kLog2Rest, near);
  return {whole, r, fused(n, -kLog2Rest, near - r)};
}
LOCKSTEP_FUNCTION Exponential parts_of_exponential(const FloatPair& x) {
  const float whole = fused(x.high, 1.44269504f, kRoundsToWhole), n = whole - kRoundsToWhole;
  const float near = fused(n, -kLog2, x.high), low = fused(n, -kLog2Rest, x.low);
  const FloatPair r = sum_of(near, low);
  return {whole, r.high, r.low};
}

LOCKSTEP_FUNCTION float exponential(float x) {
  const Exponential e = parts_of_exponential(limited(x, -105.0f, 90.0f));
  return times_power_of_2(1.0f + (e.r + e.rest), e.n);
}

// 2^x.
LOCKSTEP_FUNCTION float exponential_of_2(float x) {
  x = limited(x, -152.0f, 130.0f);
  const float whole = x + kRoundsToWhole, rest = x - (whole - kRoundsToWhole);
  constexpr float log2 = 0.693147182f, log2_rest = -1.90465421e-09f;
  const float r = rest * log2;
  const Exponential e(whole, r, fused(rest, log2_rest, fused(rest, log2, -r)));
  return times_power_of_2(1.0f + (e.r + e.rest), e.n);
}

// e^x - 1.
LOCKSTEP_FUNCTION float exponential_minus_1(float x) {
  const Exponential e = parts_of_exponential(limited(x, -20.0f, 89.0f));
  // Half of the result, because 2^n may be infinite.
  const float scale = power_of_2(e.n - 1);
  const FloatPair p = e.minus_1(), whole = sum_of(scale, -0.5f);
  const float sum = fused(scale, p.high, whole.high);
  const float lost = fused(scale, p.high, whole.high - sum) + whole.low;
  const float found = 2.0f * (sum + fused(scale, p.low, lost));
  return magnitude(x) < 0x1p-25f ? x : found;  // also keeps the sign of 0
}

LOCKSTEP_FUNCTION float hyperbolic_tangent(float x) {
  // (1 - E) / (1 + E) for E = e^(-2 |x|) = scale + scale * p.
  const Exponential e = parts_of_exponential(-2.0f * size_at_most(10.0f, magnitude(x)));
  const float scale = power_of_2(e.n);
  const FloatPair p = e.minus_1(), whole = sum_of(1.0f, -scale);
  FloatPair above{fused(-scale, p.high, whole.high), whole.low};
  above.low += fused(-scale, p.high, whole.high - above.high);
  above.low = fused(-scale, p.low, above.low);
  FloatPair below = sum_of(2.0f, -above.high);
  below.low -= above.low;
  const float inverse = 1.0f / below.high, quotient = above.high * inverse;
  const float lost =
      fused(-quotient, below.high, above.high) + fused(-quotient, below.low, above.low);
  const float found = with_sign_of(x, fused(lost, inverse, quotient));
  return x == x ? found : x;
}

// log(1 + f) - f + more, for -1/4 <= f <= 1/2; relative error of f + this: 5e-9.
LOCKSTEP_FUNCTION float rest_of_logarithm(float f, float more) {
  const float p =
      polynomial(f, -4.50736098e-02f, 1.04645304e-01f, -1.31629854e-01f, 1.44788206e-01f,
                 -1.66471645e-01f, 1.99908063e-01f, -2.50000983e-01f, 3.33334506e-01f, -0.5f);
  return fused(f * f, p, more);
}

// The bits that make x a number between 3/4 and 3/2 when they are subtracted from its bits: its
// exponent.
LOCKSTEP_FUNCTION uint32_t exponent_of(float x) { return (bits_of(x) - 0x3f400000u) & 0xff800000u; }
LOCKSTEP_FUNCTION float whole_of_exponent(uint32_t exponent) {
  return static_cast<float>(static_cast<int32_t>(exponent) >> 23);
}

LOCKSTEP_FUNCTION float logarithm(float x) {
  const bool small = x < 0x1p-126f;
  const float scaled = small ? x * 0x1p23f : x;
  const uint32_t exponent = exponent_of(scaled);
  const float n = whole_of_exponent(exponent) - (small ? 23.0f : 0.0f);
  const float f = number_of(bits_of(scaled) - exponent) - 1.0f;
  const FloatPair sum = sum_of(n * kLog2, f);
  const float found = sum.high + rest_of_logarithm(f, fused(n, kLog2Rest, sum.low));
  return with_limits_of_logarithm(x, found);
}

// log(1 + x).
LOCKSTEP_FUNCTION float logarithm_of_1_plus(float x) {
  const float sum = 1.0f + x;
  const uint32_t exponent = exponent_of(sum);
  const float n = whole_of_exponent(exponent);
  // (1 + x) 2^-n - 1, which is exact. 4 2^-n is a float also for the largest n.
  const float scale = number_of(bits_of(4.0f) - exponent);
  const float scaled = number_of(bits_of(x) - exponent);
  const float f = scaled + fused(0.25f, scale, -1.0f);
  const FloatPair high = sum_of(n * kLog2, f);
  const float found = high.high + rest_of_logarithm(f, fused(n, kLog2Rest, high.low));
  return x == 0 ? x : with_limits_of_logarithm(sum, found);
}

LOCKSTEP_FUNCTION float error_function(float x) {
  const float z = magnitude(x), w = z * z;
  // erf(z) / z - 1 up to 0.92.
  const float near =
      polynomial(w, 8.33241932e-05f, -8.13169579e-04f, 5.19979978e-03f, -2.68587395e-02f,
                 1.12836786e-01f, -3.76126319e-01f, 1.28379166e-01f);
  // -log(1 - erf(z)) / z - 1 up to 4, beyond which 1 is the nearest float.
  const float y = at_most(4.0f, z);
  const float far = polynomial(y, -3.46139615e-07f, 5.86362694e-06f, -2.43257673e-05f,
                               -2.22142946e-04f, 3.51506635e-03f, -2.37505529e-02f, 1.06383651e-01f,
                               6.35004640e-01f, 1.28693625e-01f);
  const float power = fused(far, -y, -y);
  const Exponential e = parts_of_exponential(FloatPair{power, fused(far, -y, -y - power)});
  const float rest = (1.0f + (e.r + e.rest)) * power_of_2(e.n);
  const float found = z < 0.92f ? fused(near, z, z) : 1.0f - rest;
  return with_sign_of(x, found);
}

LOCKSTEP_FUNCTION float complementary_error(float x) {
  return static_cast<float>(in_double::complementary_error(x));
}
LOCKSTEP_FUNCTION float sine(float x) { return static_cast<float>(in_double::sine(x)); }
LOCKSTEP_FUNCTION float cosine(float x) { return static_cast<float>(in_double::cosine(x)); }
LOCKSTEP_FUNCTION float tangent(float x) { return static_cast<float>(in_double::tangent(x)); }
LOCKSTEP_FUNCTION float logarithm_of_base_2(float x) {
  return static_cast<float>(in_double::logarithm_of_base_2(x));
}
LOCKSTEP_FUNCTION float power(float x, float y) {
  return static_cast<float>(in_double::power(x, y));
}

// 1 / (1 + e^-x) and the rest to 1.
struct Logistic {
  float x;
  FloatPair m;  // m 2^n = E = e^-|x|
  int32_t n;
  FloatPair sum;  // 1 + E
  float inverse;  // 1 / sum.high
  LOCKSTEP_FUNCTION explicit Logistic(float argument)
      : Logistic(argument, parts_of_exponential(-at_most(112.0f, magnitude(argument)))) {}
  // Of the e^-|x|.
  LOCKSTEP_FUNCTION Logistic(float argument, const Exponential& e) : x(argument) {
    m = e.value();
    n = e.n;
    const float scale = power_of_2(n > -126 ? n : -126);  // less does not change 1 + E
    sum = sum_of(1.0f, scale * m.high);
    sum.low = fused(scale, m.low, sum.low);
    inverse = 1.0f / sum.high;
  }
  // over / sum
  LOCKSTEP_FUNCTION FloatPair quotient(const FloatPair& over) const {
    const float high = over.high * inverse;
    const float lost = fused(-high, sum.high, over.high) + fused(-high, sum.low, over.low);
    return {high, lost * inverse};
  }
  // The value is pair() times 2^exponent().
  LOCKSTEP_FUNCTION FloatPair pair() const {
    return quotient({x > 0 ? 1.0f : m.high, x > 0 ? 0.0f : m.low});
  }
  LOCKSTEP_FUNCTION int32_t exponent() const { return x > 0 ? 0 : n; }
  LOCKSTEP_FUNCTION float value() const {
    const FloatPair q = pair();
    return times_small_power_of_2(q.high + q.low, exponent());
  }
  // factor * value, for a factor with the sign of x and |factor| <= |x|, or |x| > 112.
  LOCKSTEP_FUNCTION float value_times(float factor) const {
    const FloatPair q = pair();
    const float finite = with_sign_of(factor, at_most(112.0f, magnitude(factor)));
    const float high = finite * q.high;
    const float low = fused(finite, q.low, fused(finite, q.high, -high));
    const float found = times_small_power_of_2(high + low, exponent());
    return is_above(x, 112.0f) ? factor : with_sign_of(factor, found);
  }
  // The derivative of value, E / (1 + E)^2, times 2^more.
  LOCKSTEP_FUNCTION float slope(int32_t more = 0) const {
    const float twice = sum.high + sum.high, square = sum.high * sum.high;
    const float square_low = fused(twice, sum.low, fused(sum.high, sum.high, -square));
    const float inverse_square = inverse * inverse, high = m.high * inverse_square;
    const float lost = fused(-high, square, m.high) + fused(-high, square_low, m.low);
    return times_small_power_of_2(fused(lost, inverse_square, high), n + more);
  }
};

LOCKSTEP_FUNCTION float logistic(float x) { return Logistic(x).value(); }

// log(1 + e^x).
LOCKSTEP_FUNCTION float softplus(float x) {
  const float z = magnitude(x);
  const Exponential e = parts_of_exponential(-at_most(112.0f, z));
  const FloatPair m = e.value();
  // E = e^-|x| between 0 and 1. log(1 + E) = log(2) + log(1 + f), f = E / 2 - 1/2, for large E.
  const float high = times_small_power_of_2(m.high, e.n);
  const float low = m.low * power_of_2(e.n > -126 ? e.n : -126);
  const bool halve = high > 0.5f;
  const float f = halve ? fused(0.5f, high, -0.5f) : high;
  const float f_low = halve ? 0.5f * low : low;
  const FloatPair sum = sum_of(halve ? kLog2 : 0.0f, f);
  const float lost = sum.low + (halve ? kLog2Rest : 0.0f);
  const float rest = rest_of_logarithm(f, fused(f_low, -f, f_low) + lost);
  // The larger of 0 and x is added.
  const bool more = x > sum.high;
  const FloatPair all = sum_of(more ? x : sum.high, more ? sum.high : (x > 0 ? x : 0.0f));
  const float found = all.high + (all.low + rest);
  return is_above(x, 112.0f) ? x : found;
}

}  // namespace LOCKSTEP_FUNCTIONS_OF_PROCESSOR
}  // namespace lockstep::kernels
