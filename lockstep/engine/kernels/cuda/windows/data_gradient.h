// The gradient of a convolution's input by a kernel of this project, for windows for which cuDNN
// has no deterministic algorithm (dilated windows of three axes).
#pragma once

#include <cstdint>

#include "lockstep/base/numeric/dtype.h"
#include "lockstep/engine/kernels/windows/window.h"

namespace lockstep::kernels::cuda {

// Distances in elements between neighbors along each axis of a tensor, and its sizes. Space has
// three axes; those that a window does not have come first, with size 1.
struct StridedTensor {
  int64_t count = 1, channels = 1, space[kMostAxes] = {1, 1, 1};
  int64_t count_step = 0, channel_step = 0, space_step[kMostAxes] = {};
};

// A window by axis of StridedTensor.
struct WindowOfThree {
  int64_t kernel[kMostAxes] = {1, 1, 1}, stride[kMostAxes] = {1, 1, 1},
          dilation[kMostAxes] = {1, 1, 1}, pad[kMostAxes] = {};
};

// dx = the derivative with respect to x, for y = x convolved with w. Every element of dx is summed
// by one thread in f32: over the elements of the window for each output channel, then over the
// channels, both in rising order. So the bits are always the same. `w` is output channels x input
// channels of a group x window. All have elements of `dtype`.
void launch_data_gradient(const StridedTensor& w, const StridedTensor& dy, const StridedTensor& dx,
                          const WindowOfThree& window, int64_t groups, DType dtype,
                          const void* weights, const void* gradient, void* result, void* stream);

}  // namespace lockstep::kernels::cuda
