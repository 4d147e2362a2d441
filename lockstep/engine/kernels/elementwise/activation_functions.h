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

// (1 + tanh(u)) / 2 = sigmoid(2 u). In double, because large u lose digits in float.
struct GeluTanh {
  static constexpr double kRoot = 1.5957691216057307117;  // 2 sqrt(2 / pi)
  static constexpr double kCubic = 0.044715;
  LOCKSTEP_FUNCTION static in_double::Logistic share(double x) {
    return in_double::Logistic(kRoot * (x + kCubic * x * x * x));
  }
  LOCKSTEP_FUNCTION float value(float x) const {
    const double above = at_least(-40.0, double{x});
    return static_cast<float>(above * share(x).value);
  }
  LOCKSTEP_FUNCTION float slope(float x) const {
    const in_double::Logistic s = share(x);
    const double at = limited(double{x}, -40.0, 40.0);
    return static_cast<float>(s.value + at * kRoot * (1 + 3 * kCubic * at * at) * s.value * s.rest);
  }
};

struct Swish {
  LOCKSTEP_FUNCTION float value(float x) const { return Logistic(x).value_times_x(); }
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
