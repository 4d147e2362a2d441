// Convolution along one, two or three axes (cross-correlation, as in all deep-learning libraries).
#pragma once

#include "lockstep/engine/kernels/interface/kernel.h"
#include "lockstep/engine/kernels/windows/window.h"

namespace lockstep::kernels {

// dst[n, o, y, x] = bias[o] + sum over i, p, q of
//   weights[o, i, p, q] * src[n, i', y*sy + p*dy - ty, x*sx + q*dx - tx],
// where i' = i plus the offset of o's group, and src is zero outside its bounds. Shown for two
// axes.
struct ConvolutionProblem {
  TensorSpec src;  // n x ic x space (ih x iw); its layout is a hint
  Shape weights;   // oc x ic/groups x kh x kw
  Shape dst;       // n x oc x oh x ow
  Window window;
  int64_t groups = 1;
  bool bias = true;
};
// Inputs: src, weights, bias (oc; only if `bias`). Output: dst.
// Backward passes: data (diff src), weights (diff weights), and the bias (diff bias), either in the
// pass of the weights or in its own.

}  // namespace lockstep::kernels
