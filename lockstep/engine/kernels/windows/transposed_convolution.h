// Two-dimensional transposed convolution: the gradient of a convolution with respect to its input
// (Zeiler et al. 2010; also called fractionally strided convolution).
#pragma once

#include "lockstep/engine/kernels/interface/kernel.h"
#include "lockstep/engine/kernels/windows/window.h"

namespace lockstep::kernels {

// dst[n, o, y*sy + p*dy - ty, x*sx + q*dx - tx] += weights[i, o', p, q] * src[n, i, y, x]
// for all i, y, x, p, q, starting from bias[o]. o' is o's index in its group, and i runs over o's
// group. Positions outside dst are dropped. The window's padding is the cropping:
// oh = sy * (ih - 1) + extent - pad_begin - pad_end.
struct TransposedConvolutionProblem {
  TensorSpec src;  // n x ic x ih x iw; its layout is a hint
  Shape weights;   // ic x oc/groups x kh x kw
  Shape dst;       // n x oc x oh x ow
  Window window;
  int64_t groups = 1;
  bool bias = true;
};
// Inputs: src, weights, bias (oc; only if `bias`). Output: dst.
// Backward passes: data (diff src), weights (diff weights), and the bias (diff bias), either in the
// pass of the weights or in its own.

}  // namespace lockstep::kernels
