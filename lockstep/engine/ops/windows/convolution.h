// Convolution along one and three axes, and the general op behind all convolutions.
#pragma once

#include "lockstep/base/fields.h"
#include "lockstep/engine/autograd/tape.h"
#include "lockstep/engine/ops/windows/window.h"

namespace lockstep::ops {

struct Convolution1dParams {
  int64_t stride = 1;
  Padding1d padding{};
  int64_t dilation = 1;  // 1: neighbouring elements
  int64_t groups = 1;    // number of groups of channels and filters
};

struct Convolution3dParams {
  Size3d stride{1, 1, 1};
  Padding3d padding{};
  Size3d dilation{1, 1, 1};
  int64_t groups = 1;
};

// Like convolution2d(), for sequences (x: n x c x l; weights: o x c/groups x k) and for images with
// depth (x: n x c x d x h x w; weights: o x c/groups x kd x kh x kw). bias: o, or undefined for
// none. Throw InvalidArgument if shapes do not fit. Thread-safe.
Tensor convolution1d(const Tensor& x, const Tensor& weights, const Tensor& bias,
                     const Convolution1dParams& params = {});
Tensor convolution3d(const Tensor& x, const Tensor& weights, const Tensor& bias,
                     const Convolution3dParams& params = {});

OpPtr make_convolution1d(const Convolution1dParams& params, bool bias);
OpPtr make_convolution3d(const Convolution3dParams& params, bool bias);

// For any number of axes, which is that of `stride`.
struct ConvolutionParams {
  Sizes stride;
  WindowPadding padding;
  Sizes dilation;
  int64_t groups = 1;
};
OpPtr make_convolution(const ConvolutionParams& params, bool bias);

}  // namespace lockstep::ops
