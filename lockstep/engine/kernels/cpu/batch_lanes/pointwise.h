// Convolutions with windows of one element, for images in lanes (batch_lanes/layout.h). They are
// products of matrices, because the elements of each channel are contiguous. Uses oneDNN.
// Thread-safe.
#pragma once

#include "lockstep/engine/kernels/windows/convolution.h"

namespace lockstep::kernels::cpu {

// Whether the window is one element with stride 1, without padding, in one group.
bool is_pointwise(const ConvolutionProblem& p);
// For such a window and images in lanes, f32 or bf16. For bf16 the bias is rounded like the
// weights, because sums start from the bias in the result.
Kernel lanes_pointwise(const ConvolutionProblem& p);

}  // namespace lockstep::kernels::cpu
