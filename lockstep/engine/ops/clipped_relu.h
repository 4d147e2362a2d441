// Clipped rectified linear unit.
#pragma once

#include "lockstep/engine/autograd/tape.h"

namespace lockstep::ops {

// min(max(0, x), ceiling), element by element; NaN stays NaN. The gradient at 0 and at the ceiling
// is 0. Any shape. Throws InvalidArgument unless `ceiling` is above 0 and finite. Thread-safe.
Tensor clipped_relu(const Tensor& x, double ceiling);

OpPtr make_clipped_relu(double ceiling);

}  // namespace lockstep::ops
