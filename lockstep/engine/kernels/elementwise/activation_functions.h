// The functions of elementwise/activation.h and their derivatives, in float, shared by CPU and GPU.
// They avoid cancellation, and overflow of intermediate results if the result is finite.
#pragma once

#include <cmath>

#include "lockstep/engine/kernels/elementwise/activation.h"
#include "lockstep/engine/kernels/interface/host_device.h"

namespace lockstep::kernels {

// x * factor. A factor of 0 gives 0 even for an infinite x, but NaN stays NaN.
LOCKSTEP_HOST_DEVICE inline float damped(float x, float factor) {
  return factor == 0 && x == x ? 0.0f : x * factor;
}

// sigmoid(x) and 1 - sigmoid(x), each exact up to rounding.
struct Logistic {
  float value, rest;
  LOCKSTEP_HOST_DEVICE explicit Logistic(float x) {
    const float e = std::exp(-std::fabs(x));
    const float large = 1 / (1 + e), small = e / (1 + e);
    value = x > 0 ? large : small;
    rest = x > 0 ? small : large;
  }
};

// Each function has value(x) and slope(x), the derivative at x.

struct LeakyRelu {
  float scale;
  LOCKSTEP_HOST_DEVICE float value(float x) const { return x > 0 ? x : damped(x, scale); }
  // x may be src or dst, which have the same sign.
  LOCKSTEP_HOST_DEVICE float slope(float x) const { return x > 0 ? 1.0f : scale; }
};

struct Elu {
  float alpha;
  LOCKSTEP_HOST_DEVICE float value(float x) const { return x > 0 ? x : alpha * std::expm1(x); }
  LOCKSTEP_HOST_DEVICE float slope(float x) const { return x > 0 ? 1.0f : alpha * std::exp(x); }
};

struct Gelu {
  // The normal distribution function.
  LOCKSTEP_HOST_DEVICE static float share(float x) {
    return 0.5f * std::erfc(x * -0.70710678118654752f);
  }
  LOCKSTEP_HOST_DEVICE float value(float x) const { return damped(x, share(x)); }
  LOCKSTEP_HOST_DEVICE float slope(float x) const {
    const float density = 0.39894228040143268f * std::exp(-0.5f * x * x);
    return share(x) + damped(x, density);
  }
};

// (1 + tanh(u)) / 2 = sigmoid(2 u).
struct GeluTanh {
  static constexpr float kRoot = 1.5957691216057308f;  // 2 sqrt(2 / pi)
  static constexpr float kCubic = 0.044715f;
  LOCKSTEP_HOST_DEVICE static Logistic share(float x) {
    return Logistic(kRoot * (x + kCubic * x * x * x));
  }
  LOCKSTEP_HOST_DEVICE float value(float x) const { return damped(x, share(x).value); }
  LOCKSTEP_HOST_DEVICE float slope(float x) const {
    const Logistic s = share(x);
    return s.value + damped(x * kRoot * (1 + 3 * kCubic * x * x), s.value * s.rest);
  }
};

struct Swish {
  LOCKSTEP_HOST_DEVICE float value(float x) const { return damped(x, Logistic(x).value); }
  LOCKSTEP_HOST_DEVICE float slope(float x) const {
    const Logistic s(x);
    return s.value + damped(x, s.value * s.rest);
  }
};

struct Tanh {
  LOCKSTEP_HOST_DEVICE float value(float x) const { return std::tanh(x); }
  // 1 - tanh(x)^2, accurate even where tanh(x) rounds to 1.
  LOCKSTEP_HOST_DEVICE float slope(float x) const {
    const Logistic s(2 * x);
    return 4 * s.value * s.rest;
  }
};

struct Sigmoid {
  LOCKSTEP_HOST_DEVICE float value(float x) const { return Logistic(x).value; }
  LOCKSTEP_HOST_DEVICE float slope(float x) const {
    const Logistic s(x);
    return s.value * s.rest;
  }
};

struct Softplus {
  LOCKSTEP_HOST_DEVICE float value(float x) const {
    return (x > 0 ? x : 0.0f) + std::log1p(std::exp(-std::fabs(x)));
  }
  LOCKSTEP_HOST_DEVICE float slope(float x) const { return Logistic(x).value; }
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

}  // namespace lockstep::kernels
