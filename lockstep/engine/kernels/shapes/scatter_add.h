// Sums at elements chosen by indices: the gradient of taking (take.h).
#pragma once

#include "lockstep/engine/kernels/interface/kernel.h"

namespace lockstep::kernels {

// Each element of `updates` is added to the element of dst from which taking would have read it; an
// index outside of the axis adds nothing. The updates of one element are added in the order of
// their positions j along the axis, to 0, in double, and the sum is rounded once. So the bits
// depend on the operands alone.
struct ScatterAddProblem {
  Shape dst;
  TensorSpec updates;  // f32, of the shape that taking from dst gives
  TensorSpec indices;  // i32 or i64
  int axis = 0;
  bool per_element = false;  // as in TakeProblem
};
// Inputs: updates, indices. Output: dst, f32. A forward pass alone.

}  // namespace lockstep::kernels
