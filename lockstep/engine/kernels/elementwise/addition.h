// Addition of tensors.
#pragma once

#include <vector>

#include "lockstep/engine/kernels/interface/kernel.h"

namespace lockstep::kernels {

// dst = sum of all inputs, which have the same shape.
struct AdditionProblem {
  std::vector<TensorSpec> src;
};

}  // namespace lockstep::kernels
