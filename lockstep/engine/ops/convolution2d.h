// Two-dimensional convolution.
#pragma once

#include "lockstep/base/fields.h"
#include "lockstep/engine/autograd/tape.h"

namespace lockstep::ops {

struct Convolution2dParams {
  Size2d stride{1, 1};
  Padding2d padding{};
  Size2d dilation{1, 1};  // 1: neighbouring elements
  int64_t groups = 1;     // channels and filters are cut into so many groups
};

// y[n, o, i, j] = bias[o] + sum over c, p, q of weights[o, c, p, q] * x[n, c, i*s + p*d - t, ...]:
// a cross-correlation, as in all deep-learning libraries.
// x: n x c x h x w; weights: o x c/groups x kh x kw; bias: o, or undefined for none.
// Result: n x o x oh x ow, oh = (h + padding - d*(kh - 1) - 1) / stride + 1, rounded down.
// Throws InvalidArgument where shapes do not fit. Thread-safe.
Tensor convolution2d(const Tensor& x, const Tensor& weights, const Tensor& bias,
                     const Convolution2dParams& params = {});

// The op itself, for plans: inputs x, weights and, with `bias`, bias.
OpPtr make_convolution2d(const Convolution2dParams& params, bool bias);

}  // namespace lockstep::ops
