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

// In double, because the exponent of e^(-x^2 / 2) loses digits in float.
struct Gelu {
  static constexpr double kRoot = 0.70710678118654752440;
  LOCKSTEP_FUNCTION float value(float x) const {
    const double at = x, half = 0.5 * in_double::ErrorTail(magnitude(at) * kRoot).tail;
    const double above = at_least(-40.0, at);
    return static_cast<float>(above * (x < 0 ? half : 1 - half));
  }
  LOCKSTEP_FUNCTION float slope(float x) const {
    const double at = x;
    const in_double::ErrorTail e(magnitude(at) * kRoot);
    const double half = 0.5 * e.tail, share = x < 0 ? half : 1 - half;
    const double density = 0.39894228040143267794 * e.bell;
    return static_cast<float>(fused(limited(at, -40.0, 40.0), density, share));
  }
};

// (1 + tanh(u)) / 2 = sigmoid(2 u), u = root x (1 + cubic x^2).
struct GeluTanh {
  static constexpr float kRoot = 1.59576917f, kRootRest = -4.53406805e-08f;  // 2 sqrt(2 / pi)
  static constexpr float kCubic = 0.0447149985f, kCubicRest = 1.54614443e-09f;
  // The sigmoid of a number that has the sign of x and the size of u. Beyond 12, where |u| is more
  // than 112, as at 12; also for NaN, which the callers' products keep. By bits, see is_above().
  LOCKSTEP_FUNCTION static Logistic share(float x) {
    const uint32_t size = bits_of(magnitude(x)), most = bits_of(12.0f);
    const float z = number_of(size < most ? size : most);
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
    const float z = at_most(12.0f, magnitude(x)),
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
