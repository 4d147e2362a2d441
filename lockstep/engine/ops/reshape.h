// Another shape for observations.
#pragma once

#include "lockstep/engine/autograd/tape.h"

namespace lockstep::ops {

// The elements of each observation, row-major, as another shape: n x ... becomes n x observation.
// Throws InvalidArgument where the numbers of elements differ. Thread-safe.
Tensor reshape(const Tensor& x, const Shape& observation);

OpPtr make_reshape(Shape observation);

}  // namespace lockstep::ops
