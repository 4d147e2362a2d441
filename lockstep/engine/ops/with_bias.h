// Arguments of ops whose bias may be left out.
#pragma once

#include <vector>

#include "lockstep/engine/tensor/tensor.h"

namespace lockstep::ops {

// x, weights and, where it is defined, bias.
inline std::vector<Tensor> with_bias(const Tensor& x, const Tensor& weights, const Tensor& bias) {
  std::vector<Tensor> inputs{x, weights};
  if (bias.defined()) inputs.push_back(bias);
  return inputs;
}

}  // namespace lockstep::ops
