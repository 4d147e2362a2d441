// Inputs of ops with an optional bias.
#pragma once

#include <vector>

#include "lockstep/engine/tensor/tensor.h"

namespace lockstep::ops {

// Returns x, weights and, if it is defined, bias.
inline std::vector<Tensor> with_bias(const Tensor& x, const Tensor& weights, const Tensor& bias) {
  std::vector<Tensor> inputs{x, weights};
  if (bias.defined()) inputs.push_back(bias);
  return inputs;
}

}  // namespace lockstep::ops
