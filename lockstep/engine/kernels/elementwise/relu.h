// Rectified linear unit.
#pragma once

#include "lockstep/engine/kernels/interface/kernel.h"

namespace lockstep::kernels {

// dst = max(0, src); the gradient at 0 is 0. Backward reads dst.
struct ReluProblem {
  TensorSpec src;
};

}  // namespace lockstep::kernels
