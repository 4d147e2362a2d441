// Flattening.
#pragma once

#include "lockstep/engine/autograd/tape.h"

namespace lockstep::ops {

// Turns each observation into one row: n x ... becomes n x (product of the rest), row-major.
// Thread-safe.
Tensor flatten(const Tensor& x);

OpPtr make_flatten();

}  // namespace lockstep::ops
