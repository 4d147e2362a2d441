// Two-dimensional transposed convolution.
#pragma once

#include "lockstep/base/fields.h"
#include "lockstep/engine/autograd/tape.h"

namespace lockstep::ops {

struct TransposedConvolution2dParams {
  Size2d stride{1, 1};
  Padding2d padding{};    // cropped from the result; "same": the result has input size x stride
  Size2d dilation{1, 1};  // 1: neighbouring elements
  int64_t groups = 1;     // channels and filters are cut into so many groups
};

// The gradient of a convolution with respect to its input, as an op of its own (Zeiler et al.
// 2010): every element of x adds `weights` times itself to the result, its window's corner at
// stride * position - padding; then the bias.
// x: n x c x h x w; weights: c x o/groups x kh x kw; bias: o, or undefined for none.
// Result: n x o x oh x ow, oh = stride * (h - 1) + d*(kh - 1) + 1 - padding.
// Throws InvalidArgument where shapes do not fit. Thread-safe.
Tensor transposed_convolution2d(const Tensor& x, const Tensor& weights, const Tensor& bias,
                                const TransposedConvolution2dParams& params = {});

// The op itself, for plans: inputs x, weights and, with `bias`, bias.
OpPtr make_transposed_convolution2d(const TransposedConvolution2dParams& params, bool bias);

}  // namespace lockstep::ops
