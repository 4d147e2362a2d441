// Rectified linear unit.
#pragma once

#include "lockstep/engine/autograd/tape.h"

namespace lockstep::ops {

// max(0, x) for each element of x, which has any shape. NaN gives NaN. The gradient at 0 is 0.
// Thread-safe.
Tensor relu(const Tensor& x);

OpPtr make_relu();

}  // namespace lockstep::ops
