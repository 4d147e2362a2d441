// Sums over all elements.
#pragma once

#include "lockstep/engine/autograd/tape.h"

namespace lockstep::ops {

// Sum (mean) of all elements of x: a scalar. The elements are added in double precision, in the
// order of the fixed tree over elements. mean() throws InvalidArgument if x has no elements.
// Thread-safe.
Tensor sum(const Tensor& x);
Tensor mean(const Tensor& x);

// Computes factor times the sum.
OpPtr make_sum(double factor = 1);

}  // namespace lockstep::ops
