// Sums of all elements up to each one along an axis.
#pragma once

#include "lockstep/engine/kernels/interface/kernel.h"

namespace lockstep::kernels {

// dst[o, k, i] = sum of src[o, 0..k, i] with the axis in the middle (split_axis.h); `reverse`: of
// src[o, k..size - 1, i]. The running sum begins with 0, adds one element after the other in
// double, and is rounded for each element of dst.
struct CumulativeSumProblem {
  TensorSpec src;  // f32
  int axis = 0;
  bool reverse = false;
};
// A forward pass alone.

}  // namespace lockstep::kernels
