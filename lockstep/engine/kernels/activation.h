// Elementwise activations.
#pragma once

#include "lockstep/engine/kernels/kernel.h"

namespace lockstep::kernels {

enum class ActivationKind : uint8_t {
  leaky_relu,  // x > 0: x; else parameter * x
  elu,         // x > 0: x; else parameter * (exp(x) - 1)
  gelu,        // x * P(x), P the distribution function of the normal distribution
  gelu_tanh,   // x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))) / 2
  swish,       // x * sigmoid(x)
  tanh,
  sigmoid,   // 1 / (1 + exp(-x))
  softplus,  // log(1 + exp(x))
};

// dst = f(src), element by element. NaN stays NaN; infinities give the limits of f.
struct ActivationProblem {
  TensorSpec src;
  ActivationKind kind = ActivationKind::leaky_relu;
  double parameter = 0;  // leaky_relu, elu: not negative
};

// Backward reads dst where its sign says all, so that src need not be kept. Elsewhere it reads src:
// where f saturates, dst has lost what the gradient depends on.
inline bool backward_reads_dst(ActivationKind kind) { return kind == ActivationKind::leaky_relu; }

// Whether f(0) = 0: such an f leaves the zeros of padded layouts zeros.
inline bool keeps_zero(ActivationKind kind) {
  return kind != ActivationKind::sigmoid && kind != ActivationKind::softplus;
}

}  // namespace lockstep::kernels
