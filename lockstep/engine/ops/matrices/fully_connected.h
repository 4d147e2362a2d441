// The op of fully connected layers.
#pragma once

#include "lockstep/engine/autograd/tape.h"

namespace lockstep::ops {

// y[n, o] = bias[o] + sum over i of weights[o, i] * x[n, i], where i runs over all elements of an
// observation in row-major order. x: n x ... with i elements per observation; weights: o x i; bias:
// o, or undefined for none. Result: n x o. Throws InvalidArgument if shapes do not fit.
// Thread-safe.
Tensor fully_connected(const Tensor& x, const Tensor& weights, const Tensor& bias);

// Inputs: x, weights and, if `bias` is true, bias.
OpPtr make_fully_connected(bool bias);

}  // namespace lockstep::ops
