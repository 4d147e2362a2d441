// Clipped rectified linear unit.
#pragma once

#include "lockstep/engine/kernels/interface/kernel.h"

namespace lockstep::kernels {

// dst = min(max(0, src), ceiling); the gradient at 0 and at the ceiling is 0. Backward reads dst.
struct ClippedReluProblem {
  TensorSpec src;
  double ceiling = 1;  // above 0
};

}  // namespace lockstep::kernels
