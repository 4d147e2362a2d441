// Convolution along one, two or three axes (cross-correlation, as in all deep-learning libraries).
#pragma once

#include "lockstep/engine/kernels/kernel.h"
#include "lockstep/engine/kernels/window.h"

namespace lockstep::kernels {

// dst[n, o, y, x] = bias[o] + sum over i, p, q of
//   weights[o, i, p, q] * src[n, i', y*sy + p*dy - ty, x*sx + q*dx - tx],
// with i' = i plus the offset of o's group, zeros outside src; for the window's number of axes.
struct ConvolutionProblem {
  TensorSpec src;  // n x ic x space (ih x iw), in any layout: a hint
  Shape weights;   // oc x ic/groups x kh x kw
  Shape dst;       // n x oc x oh x ow
  Window window;
  int64_t groups = 1;
  bool bias = true;
};
// Inputs: src, weights, bias (oc; only with `bias`). Output: dst.
// Backward passes: data (diff src), weights (diff weights) and, with them or by itself, the bias
// (diff bias).

}  // namespace lockstep::kernels
