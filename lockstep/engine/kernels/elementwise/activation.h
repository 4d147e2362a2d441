// Elementwise activations.
#pragma once

#include "lockstep/engine/kernels/interface/kernel.h"

namespace lockstep::kernels {

enum class ActivationKind : uint8_t {
  leaky_relu,  // x > 0: x; else parameter * x
  elu,         // x > 0: x; else parameter * (exp(x) - 1)
  gelu,        // x * P(x), P being the normal distribution function
  gelu_tanh,   // x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))) / 2
  swish,       // x * sigmoid(x)
  tanh,
  sigmoid,   // 1 / (1 + exp(-x))
  softplus,  // log(1 + exp(x))
};

// dst = f(src), elementwise. NaN stays NaN; infinities give the limits of f.
struct ActivationProblem {
  TensorSpec src;
  ActivationKind kind = ActivationKind::leaky_relu;
  double parameter = 0;  // of leaky_relu and elu; not negative
};

// Backward reads dst if the sign of dst suffices, so that src need not be kept. Otherwise it reads
// src, because dst has lost the information where f saturates.
inline bool backward_reads_dst(ActivationKind kind) { return kind == ActivationKind::leaky_relu; }

// Whether f(0) = 0. If so, the zeros in the padding of padded layouts stay zeros.
inline bool keeps_zero(ActivationKind kind) {
  return kind != ActivationKind::sigmoid && kind != ActivationKind::softplus;
}

}  // namespace lockstep::kernels
