// Two-dimensional transposed convolution: what a convolution's gradient does with respect to its
// input (Zeiler et al. 2010; also called fractionally strided convolution).
#pragma once

#include "lockstep/engine/kernels/kernel.h"
#include "lockstep/engine/kernels/window.h"

namespace lockstep::kernels {

// dst[n, o, y*sy + p*dy - ty, x*sx + q*dx - tx] += weights[i, o', p, q] * src[n, i, y, x]
// for all i, y, x, p, q, beginning with bias[o]; o' is o's place in its group, i runs over o's
// group; what falls outside dst is dropped. The window's padding is what is cropped:
// oh = sy * (ih - 1) + extent - pad_begin - pad_end.
struct TransposedConvolutionProblem {
  TensorSpec src;  // n x ic x ih x iw, in any layout: a hint
  Shape weights;   // ic x oc/groups x kh x kw
  Shape dst;       // n x oc x oh x ow
  Window window;
  int64_t groups = 1;
  bool bias = true;
};
// Inputs: src, weights, bias (oc; only with `bias`). Output: dst.
// Backward passes: data (diff src), weights (diff weights) and, with them or by itself, the bias
// (diff bias).

}  // namespace lockstep::kernels
