// Reshaping of observations.
#pragma once

#include "lockstep/engine/autograd/tape.h"

namespace lockstep::ops {

// Gives each observation another shape, row-major: n x ... becomes n x observation. Throws
// InvalidArgument if the numbers of elements differ. Thread-safe.
Tensor reshape(const Tensor& x, const Shape& observation);

OpPtr make_reshape(Shape observation);

}  // namespace lockstep::ops
