// Values at the positions of the largest elements in windows.
#pragma once

#include "lockstep/engine/kernels/interface/kernel.h"
#include "lockstep/engine/kernels/windows/window.h"

namespace lockstep::kernels {

// Inputs: x and values, both of `src`, f32, n x c x space. dst = the value at the position of the
// largest element of x in each window, the first of equal ones: the transpose of max pooling's
// backward pass. Padding is never the largest. One pass.
struct PooledAtMaximumProblem {
  TensorSpec src;
  Shape dst;
  Window window;
};

}  // namespace lockstep::kernels
