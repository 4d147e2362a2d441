// Sums over all elements.
#pragma once

#include "lockstep/engine/autograd/tape.h"

namespace lockstep::ops {

// Sum (mean) of all elements of x: a scalar, added in the order of the fixed tree over elements, in
// double precision. The mean of no elements is InvalidArgument. Thread-safe.
Tensor sum(const Tensor& x);
Tensor mean(const Tensor& x);

// factor times the sum.
OpPtr make_sum(double factor = 1);

}  // namespace lockstep::ops
