// Elementwise multiplication of tensors.
#pragma once

#include <vector>

#include "lockstep/engine/kernels/interface/kernel.h"

namespace lockstep::kernels {

// dst = product of all inputs, which have the same shape, from the first to the last.
struct MultiplicationProblem {
  std::vector<TensorSpec> src;
};

}  // namespace lockstep::kernels
