// The derivative of products along the last axis.
#pragma once

#include "lockstep/engine/kernels/interface/kernel.h"

namespace lockstep::kernels {

// dst[r, i] = product over j != i of src[r, j], where i is along the last axis: what comes before
// i, in order, times what comes after i, from the last on, in double and rounded once. src, dst:
// one shape of at least one axis, f32. One pass.
struct ProductsOfOthersProblem {
  TensorSpec src;
};

}  // namespace lockstep::kernels
