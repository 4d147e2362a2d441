// Multiplication of tensors, element by element.
#pragma once

#include <vector>

#include "lockstep/engine/kernels/kernel.h"

namespace lockstep::kernels {

// dst = product of all inputs, which have one shape, from the first to the last.
struct MultiplicationProblem {
  std::vector<TensorSpec> src;
};

}  // namespace lockstep::kernels
