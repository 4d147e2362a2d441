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

// What is to be decided for each kind.
struct ActivationTraits {
  // Whether f(0) = 0. If so, the zeros in the padding of padded layouts stay zeros.
  bool keeps_zero;
  // Backward reads dst if the sign of dst suffices, so that src need not be kept. Otherwise it
  // reads src, because dst has lost the information where f saturates.
  bool backward_reads_dst;
};

// No default case: the compiler reports a kind that is missing.
constexpr ActivationTraits activation_traits(ActivationKind kind) {
  switch (kind) {
    case ActivationKind::leaky_relu:
      return {.keeps_zero = true, .backward_reads_dst = true};
    case ActivationKind::elu:
    case ActivationKind::gelu:
    case ActivationKind::gelu_tanh:
    case ActivationKind::swish:
    case ActivationKind::tanh:
      return {.keeps_zero = true, .backward_reads_dst = false};
    case ActivationKind::sigmoid:
    case ActivationKind::softplus:
      return {.keeps_zero = false, .backward_reads_dst = false};
  }
  return {.keeps_zero = false, .backward_reads_dst = false};
}

constexpr bool backward_reads_dst(ActivationKind kind) {
  return activation_traits(kind).backward_reads_dst;
}
constexpr bool keeps_zero(ActivationKind kind) { return activation_traits(kind).keeps_zero; }

}  // namespace lockstep::kernels
