// The functions of elementwise/activation.h and their derivatives, shared by CPU and GPU. They
// avoid cancellation, and overflow of intermediate results if the result is finite. Infinite
// arguments give the limits; where a product would be infinity times 0, one factor is limited to
// numbers beyond which the other is 0 in float.
#pragma once

#include "lockstep/engine/kernels/elementwise/activation.h"
#include "lockstep/engine/kernels/elementwise/functions.h"

namespace lockstep::kernels {

#if defined(__CUDACC__) || defined(LOCKSTEP_CUDA_EMULATION)
inline namespace on_gpu {
#else
inline namespace on_cpu {
#endif

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
    const auto below = static_cast<float>(alpha * exponential_minus_1(x));
    return x > 0 ? x : below;
  }
  LOCKSTEP_FUNCTION float slope(float x) const {
    const auto below = static_cast<float>(alpha * exponential(x));
    return x > 0 ? 1.0f : below;
  }
};

struct Gelu {
  // The normal distribution function.
  LOCKSTEP_FUNCTION static Real share(Real x) {
    return Real(0.5) * complementary_error(x * Real(-0.70710678118654752440));
  }
  LOCKSTEP_FUNCTION float value(float x) const {
    const Real above = x < Real(-40) ? Real(-40) : Real(x);
    return static_cast<float>(above * share(x));
  }
  LOCKSTEP_FUNCTION float slope(float x) const {
    const Real at = x, density = Real(0.39894228040143267794) * exponential(Real(-0.5) * at * at);
    return static_cast<float>(share(at) + limited(at, -40, 40) * density);
  }
};

// (1 + tanh(u)) / 2 = sigmoid(2 u).
struct GeluTanh {
  static constexpr Real kRoot = Real(1.5957691216057307117);  // 2 sqrt(2 / pi)
  static constexpr Real kCubic = Real(0.044715);
  LOCKSTEP_FUNCTION static Logistic share(Real x) {
    return Logistic(kRoot * (x + kCubic * x * x * x));
  }
  LOCKSTEP_FUNCTION float value(float x) const {
    const Real above = x < Real(-40) ? Real(-40) : Real(x);
    return static_cast<float>(above * share(x).value);
  }
  LOCKSTEP_FUNCTION float slope(float x) const {
    const Logistic s = share(x);
    const Real at = limited(x, -40, 40);
    return static_cast<float>(s.value + at * kRoot * (1 + 3 * kCubic * at * at) * s.value * s.rest);
  }
};

struct Swish {
  LOCKSTEP_FUNCTION float value(float x) const {
    const Real above = x < Real(-200) ? Real(-200) : Real(x);
    return static_cast<float>(above * Logistic(x).value);
  }
  LOCKSTEP_FUNCTION float slope(float x) const {
    const Logistic s(x);
    return static_cast<float>(s.value + limited(x, -200, 200) * (s.value * s.rest));
  }
};

struct Tanh {
  LOCKSTEP_FUNCTION float value(float x) const { return static_cast<float>(hyperbolic_tangent(x)); }
  // 1 - tanh(x)^2, accurate even where tanh(x) rounds to 1.
  LOCKSTEP_FUNCTION float slope(float x) const {
    const Logistic s(2 * Real(x));
    return static_cast<float>(4 * (s.value * s.rest));
  }
};

struct Sigmoid {
  LOCKSTEP_FUNCTION float value(float x) const { return static_cast<float>(logistic(x)); }
  LOCKSTEP_FUNCTION float slope(float x) const {
    const Logistic s(x);
    return static_cast<float>(s.value * s.rest);
  }
};

struct Softplus {
  LOCKSTEP_FUNCTION float value(float x) const { return static_cast<float>(softplus(x)); }
  LOCKSTEP_FUNCTION float slope(float x) const { return static_cast<float>(logistic(x)); }
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

}  // namespace on_gpu or on_cpu
}  // namespace lockstep::kernels
