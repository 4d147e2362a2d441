// The op of all convolutions.
#pragma once

#include "lockstep/engine/graph/op.h"
#include "lockstep/engine/ops/networks/window.h"

namespace lockstep::ops {

// The number of axes is that of `stride`.
struct ConvolutionParams {
  Sizes stride;
  WindowPadding padding;
  Sizes dilation;
  int64_t groups = 1;
};
OpPtr make_convolution(const ConvolutionParams& params, bool bias);

}  // namespace lockstep::ops
