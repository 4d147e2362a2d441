// Two-dimensional convolution.
#pragma once

#include "lockstep/base/fields.h"
#include "lockstep/engine/autograd/tape.h"

namespace lockstep::ops {

struct Convolution2dParams {
  Size2d stride{1, 1};
  Padding2d padding{};
  Size2d dilation{1, 1};  // 1: neighbouring elements
  int64_t groups = 1;     // number of groups of channels and filters
};

// y[n, o, i, j] = bias[o] + sum over c, p, q of weights[o, c, p, q] * x[n, c, i*s + p*d - t, ...]
// with stride s, dilation d and top padding t. This is a cross-correlation, as in other
// deep-learning libraries.
// x: n x c x h x w; weights: o x c/groups x kh x kw; bias: o, or undefined for none.
// Result: n x o x oh x ow, oh = (h + padding - d*(kh - 1) - 1) / stride + 1, rounded down.
// Throws InvalidArgument if shapes do not fit. Thread-safe.
Tensor convolution2d(const Tensor& x, const Tensor& weights, const Tensor& bias,
                     const Convolution2dParams& params = {});

// The op itself, for plans. Inputs: x, weights and, if `bias` is true, bias.
OpPtr make_convolution2d(const Convolution2dParams& params, bool bias);

}  // namespace lockstep::ops
