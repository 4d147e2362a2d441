// The bias of convolutions and fully connected ops.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lockstep/base/numeric/bfloat16.h"
#include "lockstep/base/numeric/dtype.h"

namespace lockstep::kernels::cuda {

// Positions of a tensor of `rows` (observations x pixels) x `channels`. The elements of a channel
// lie in runs of `inner`: 1 with channels last, the number of pixels of an image in row-major
// memory.
struct ChannelLayout {
  int64_t rows = 0, channels = 0, inner = 1;
};

// y += bias[channel]. T is float, BFloat16 or Float16.
template <class T>
void launch_bias(const ChannelLayout& layout, const float* bias, T* y, void* stream);

// diff_bias[channel] = sum of dy over rows, in an order that depends only on the sizes and on T, as
// above. `scratch` has the bytes that bias_gradient_scratch() returns for dy of type `dtype`.
size_t bias_gradient_scratch(const ChannelLayout& layout, DType dtype);
template <class T>
void launch_bias_gradient(const ChannelLayout& layout, const T* dy, float* diff_bias, void* scratch,
                          void* stream);

}  // namespace lockstep::kernels::cuda
