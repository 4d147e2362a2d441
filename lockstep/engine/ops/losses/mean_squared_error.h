// Mean squared error. One value per observation.
#pragma once

#include "lockstep/engine/autograd/tape.h"

namespace lockstep::ops {

// Mean of (prediction - target)^2 over the elements of each observation: n values. prediction,
// target: n x .... Throws InvalidArgument if their shapes differ. Thread-safe.
Tensor mean_squared_error(const Tensor& prediction, const Tensor& target);

OpPtr make_mean_squared_error();

}  // namespace lockstep::ops
