// The functions of elementwise/activation.h and their derivatives, shared by CPU and GPU. They
// avoid cancellation, and overflow of intermediate results if the result is finite. Infinite
// arguments give the limits; where a product would be infinity times 0, one factor is limited to
// numbers beyond which the other is 0 in float.
#pragma once

#include "lockstep/engine/kernels/elementwise/activation.h"
#include "lockstep/engine/kernels/elementwise/functions.h"

namespace lockstep::kernels {

inline namespace LOCKSTEP_FUNCTIONS_OF_PROCESSOR {

// Each function has value(x) and slope(x), the derivative at x.

struct LeakyRelu {
  float scale;
  // A scale of 0 gives 0 even for an infinite x, but NaN stays NaN.
  LOCKSTEP_FUNCTION float value(float x) const {
    const float scaled = scale == 0 && x == x ? 0.0f : x * scale;
    return x > 0 ? x : scaled;
  }
  // x may be src or dst, which have the same sign.
  LOCKSTEP_FUNCTION float slope(float x) const { return x > 0 ? 1.0f : scale; }
};

struct Elu {
  float alpha;
  LOCKSTEP_FUNCTION float value(float x) const {
    const float below = alpha * exponential_minus_1(x);
    return x > 0 ? x : below;
  }
  LOCKSTEP_FUNCTION float slope(float x) const {
    const float below = alpha * exponential(x);
    return x > 0 ? 1.0f : below;
  }
};

// By P(-z) = e^(-z^2 / 2) M(z), P being the normal distribution function and z = |x|.
struct Gelu {
  // Beyond 15, where e^(-z^2 / 2) times z is 0 in float, as at 15.
  LOCKSTEP_FUNCTION static float size_of(float x) { return size_at_most(15.0f, magnitude(x)); }
  // e^(-z^2 / 2).
  LOCKSTEP_FUNCTION static Exponential bell(float z) {
    const float half = -0.5f * z, high = half * z;
    return parts_of_exponential(FloatPair{high, fused(half, z, -high)});
  }
  LOCKSTEP_FUNCTION float value(float x) const {
    const float z = size_of(x);
    const Exponential e = bell(z);
    FloatPair m = sum_of(1.0f, e.r);
    m.low += e.rest;
    // M(z) = Q t with t = 1 / (7 / 4 + z), and Q a polynomial of t - 1/4; relative error 4e-9.
    const float sum = z + 1.75f, sum_low = z - (sum - 1.75f), t = 1.0f / sum;
    const float t_low = t * fused(-t, sum_low, fused(-t, sum, 1.0f));
    constexpr float middle = 0.614607751f, first = 0.947996020f;
    const float at = t - 0.25f;
    const float p = polynomial(at, -211.929199f, 200.554565f, -13.5784645f, -58.9336700f,
                               30.0998936f, 1.05610359f, -8.24827480f, 3.42932677f, 1.13937116f,
                               -1.64323103f, -0.0635858029f, first);
    const float q = fused(p, at, middle), slope = fused(2.0f, p, -first);
    const FloatPair ratio =
        product_of({q, fused(slope, t_low, fused(p, at, middle - q))}, {t, t_low});
    const FloatPair share = product_of(ratio, m);
    // z P(-z); for positive x the rest to z.
    const float high = z * share.high;
    const float low = fused(z, share.low, fused(z, share.high, -high));
    const float small = times_small_power_of_2(high + low, e.n);
    return with_sign_of(x, (x < 0 ? 0.0f : x) - small);
  }
  LOCKSTEP_FUNCTION float slope(float x) const {
    const float z = size_of(x);
    const Exponential e = bell(z);
    // M(z) by u = z / (3 + z); the error, times e^(-z^2 / 2), is 1e-9.
    const float u = z / (z + 3.0f);
    const float p = polynomial(u, -0.0327496715f, 0.0829193369f, 0.0360959657f, -0.153483719f,
                               -0.287551075f, 1.05318546f, -1.19682705f);
    const float ratio = fused(-0.398942280f, z, fused(p, u, 0.5f));
    const float small = times_small_power_of_2(fused(ratio, e.r + e.rest, ratio), e.n);
    const float found = x > 0 ? 1.0f - small : small;
    return x == x ? found : x;
  }
};

// (1 + tanh(u)) / 2 = sigmoid(2 u), u = root x (1 + cubic x^2).
struct GeluTanh {
  static constexpr float kRoot = 1.59576917f, kRootRest = -4.53406805e-08f;  // 2 sqrt(2 / pi)
  static constexpr float kCubic = 0.0447149985f, kCubicRest = 1.54614443e-09f;
  // The sigmoid of a number that has the sign of x and the size of u. Beyond 11, where |u| is more
  // than 112, as at 11; also for NaN, which the callers' products keep. By bits, see is_above().
  LOCKSTEP_FUNCTION static Logistic share(float x) {
    const float z = size_at_most(11.0f, magnitude(x));
    const float square = z * z, factor = fused(kCubic, square, 1.0f);
    const float of_square = fused(z, z, -square), of_factor = fused(kCubic, square, 1.0f - factor);
    const float root = kRoot * z, of_root = fused(kRoot, z, -root);
    const FloatPair u =
        product_of({root, fused(kRootRest, z, of_root)},
                   {factor, fused(kCubic, of_square, fused(kCubicRest, square, of_factor))});
    return Logistic(x, parts_of_exponential(FloatPair{-u.high, -u.low}));
  }
  LOCKSTEP_FUNCTION float value(float x) const { return share(x).value_times(x); }
  LOCKSTEP_FUNCTION float slope(float x) const {
    const Logistic s = share(x);
    const float z = at_most(11.0f, magnitude(x)),
                inner = kRoot * z * fused(3.0f * kCubic, z * z, 1.0f);
    return fused(with_sign_of(x, inner), s.slope(), s.value());
  }
};

struct Swish {
  LOCKSTEP_FUNCTION float value(float x) const { return Logistic(x).value_times(x); }
  LOCKSTEP_FUNCTION float slope(float x) const {
    const Logistic s(x);
    return fused(limited(x, -200.0f, 200.0f), s.slope(), s.value());
  }
};

struct Tanh {
  LOCKSTEP_FUNCTION float value(float x) const { return hyperbolic_tangent(x); }
  // 1 - tanh(x)^2, accurate even where tanh(x) rounds to 1.
  LOCKSTEP_FUNCTION float slope(float x) const { return Logistic(2.0f * x).slope(2); }
};

struct Sigmoid {
  LOCKSTEP_FUNCTION float value(float x) const { return logistic(x); }
  LOCKSTEP_FUNCTION float slope(float x) const { return Logistic(x).slope(); }
};

struct Softplus {
  LOCKSTEP_FUNCTION float value(float x) const { return softplus(x); }
  LOCKSTEP_FUNCTION float slope(float x) const { return logistic(x); }
};

// Calls visit(f) with the function of a problem.
template <class Visit>
auto with_function(const ActivationProblem& p, Visit&& visit) {
  const auto parameter = static_cast<float>(p.parameter);
  switch (p.kind) {
    case ActivationKind::leaky_relu:
      return visit(LeakyRelu{parameter});
    case ActivationKind::elu:
      return visit(Elu{parameter});
    case ActivationKind::gelu:
      return visit(Gelu{});
    case ActivationKind::gelu_tanh:
      return visit(GeluTanh{});
    case ActivationKind::swish:
      return visit(Swish{});
    case ActivationKind::tanh:
      return visit(Tanh{});
    case ActivationKind::sigmoid:
      return visit(Sigmoid{});
    case ActivationKind::softplus:
      break;
  }
  return visit(Softplus{});
}

}  // namespace LOCKSTEP_FUNCTIONS_OF_PROCESSOR
}  // namespace lockstep::kernels
