// Clipped rectified linear unit.
#pragma once

#include "lockstep/engine/autograd/tape.h"

namespace lockstep::ops {

// min(max(0, x), ceiling) for each element of x, which has any shape. NaN gives NaN. The gradient
// at 0 and at the ceiling is 0. Throws InvalidArgument unless `ceiling` is finite and above 0.
// Thread-safe.
Tensor clipped_relu(const Tensor& x, double ceiling);

OpPtr make_clipped_relu(double ceiling);

}  // namespace lockstep::ops
