// The bias of convolutions and fully connected ops.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lockstep/base/bfloat16.h"

namespace lockstep::kernels::cuda {

// A tensor of `rows` (observations x pixels) times `channels`. A channel's elements lie `inner` in
// a row: 1 with channels last, an image's pixels in row-major memory.
struct ChannelPlaces {
  int64_t rows = 0, channels = 0, inner = 1;
};

// y += bias[channel]. For y of float, BFloat16 and Float16.
template <class T>
void launch_bias(const ChannelPlaces& places, const float* bias, T* y, void* queue);

// diff_bias[channel] = sum of dy (of one of these, too) over rows, in an order that depends on the
// sizes alone.
size_t bias_gradient_scratch(const ChannelPlaces& places);
template <class T>
void launch_bias_gradient(const ChannelPlaces& places, const T* dy, float* diff_bias, void* scratch,
                          void* queue);

}  // namespace lockstep::kernels::cuda
