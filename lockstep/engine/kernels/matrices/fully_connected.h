// Fully connected layer (inner product).
#pragma once

#include "lockstep/engine/kernels/interface/kernel.h"

namespace lockstep::kernels {

// dst[n, o] = bias[o] + sum over i of weights[o, i] * src[n, i], where i runs over all elements of
// an observation in row-major order.
struct FullyConnectedProblem {
  TensorSpec src;  // n x any shape, in any layout
  int64_t units = 0;
  bool bias = true;
};
// Inputs: src, weights (units x i), bias (units; only if `bias`). Output: dst (n x units).
// Backward passes: data (diff src) and weights (diff weights, diff bias).

}  // namespace lockstep::kernels
