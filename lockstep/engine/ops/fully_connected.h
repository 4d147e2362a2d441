// Fully connected layers' op.
#pragma once

#include "lockstep/engine/autograd/tape.h"

namespace lockstep::ops {

// y[n, o] = bias[o] + sum over i of weights[o, i] * x[n, i], where i runs over all elements of an
// observation in row-major order.
// x: n x anything with i elements; weights: o x i; bias: o, or undefined for none. Result: n x o.
// Throws InvalidArgument where shapes do not fit. Thread-safe.
Tensor fully_connected(const Tensor& x, const Tensor& weights, const Tensor& bias);

// Inputs x, weights and, with `bias`, bias.
OpPtr make_fully_connected(bool bias);

}  // namespace lockstep::ops
