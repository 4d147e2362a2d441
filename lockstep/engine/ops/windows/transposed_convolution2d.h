// Two-dimensional transposed convolution.
#pragma once

#include "lockstep/base/fields.h"
#include "lockstep/engine/autograd/tape.h"

namespace lockstep::ops {

struct TransposedConvolution2dParams {
  Size2d stride{1, 1};
  Padding2d padding{};  // cropped from the result; "same": the result's size is input size x stride
  Size2d dilation{1, 1};  // 1: neighbouring elements
  int64_t groups = 1;     // number of groups of channels and filters
};

// The gradient of a convolution with respect to its input, used as a forward op (Zeiler et al.
// 2010). Each element of x adds `weights` times itself to the result. The corner of its window is
// at stride * position - padding. The bias is then added.
// x: n x c x h x w; weights: c x o/groups x kh x kw; bias: o, or undefined for none.
// Result: n x o x oh x ow, oh = stride * (h - 1) + d*(kh - 1) + 1 - padding.
// Throws InvalidArgument if shapes do not fit. Thread-safe.
Tensor transposed_convolution2d(const Tensor& x, const Tensor& weights, const Tensor& bias,
                                const TransposedConvolution2dParams& params = {});

// The op itself, for plans. Inputs: x, weights and, if `bias` is true, bias.
OpPtr make_transposed_convolution2d(const TransposedConvolution2dParams& params, bool bias);

}  // namespace lockstep::ops
