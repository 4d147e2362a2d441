// Sum of all elements.
#pragma once

#include "lockstep/engine/kernels/interface/kernel.h"

namespace lockstep::kernels {

// dst = factor * (sum of all elements of src), a scalar. Adds in the order of the fixed tree over
// elements.
struct SumProblem {
  TensorSpec src;
  double factor = 1;
};

}  // namespace lockstep::kernels
