// Normalization of inputs.
#pragma once

#include "lockstep/engine/kernels/interface/kernel.h"

namespace lockstep::kernels {

// dst[n, c, y, x] = (src - offset[c]) * factor[c], f32.
// Inputs: src (n x c x h x w or n x c; f32, or u8 for pixels), offset (c), factor (c).
// Output: dst (shape of src). One backward pass, for f32 only: diff src.
struct NormalizeImagesProblem {
  TensorSpec src;
};

}  // namespace lockstep::kernels
