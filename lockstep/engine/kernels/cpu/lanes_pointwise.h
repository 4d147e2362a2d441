// Convolutions by windows of one element over images that lie in the lanes of vectors
// (lanes_layout.h): products of matrices, as each channel's elements lie one behind the other. By
// oneDNN. Thread-safe.
#pragma once

#include "lockstep/engine/kernels/convolution.h"

namespace lockstep::kernels::cpu {

// Whether the window is one element that moves by one, without padding.
bool is_pointwise(const ConvolutionProblem& p);
// For such a window, images in lanes, f32 or bf16, one group. With bf16 the bias is rounded as the
// weights are: sums begin with it where the results are.
Kernel lanes_pointwise(const ConvolutionProblem& p);

}  // namespace lockstep::kernels::cpu
