// Rectified linear unit.
#pragma once

#include "lockstep/engine/autograd/tape.h"

namespace lockstep::ops {

// max(0, x), element by element; NaN stays NaN. The gradient at 0 is 0. Any shape. Thread-safe.
Tensor relu(const Tensor& x);

OpPtr make_relu();

}  // namespace lockstep::ops
