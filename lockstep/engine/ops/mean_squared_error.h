// Mean squared error. One value per observation.
#pragma once

#include "lockstep/engine/autograd/tape.h"

namespace lockstep::ops {

// Mean over the elements of each observation of (prediction - target)^2: n values.
// prediction, target: n x ..., one shape, else InvalidArgument. Thread-safe.
Tensor mean_squared_error(const Tensor& prediction, const Tensor& target);

OpPtr make_mean_squared_error();

}  // namespace lockstep::ops
