// Convolution of each channel separately, for images whose batch fills a vector's lanes.
// Thread-safe; allocates nothing.
#pragma once

#include <cstddef>

#include "lockstep/engine/kernels/cpu/batch_lanes/convolution.h"

namespace lockstep::kernels::cpu {

// `p` as in batch_lanes/convolution.h, where `filters` is a multiple of `channels`. The filters of
// a channel are consecutive. Weights: filters x window, row-major f32. Sums are f32. `bias` has one
// element per filter, or is null.
void lanes_depthwise(const LanesConvolution& p, const void* x, const float* weights,
                     const float* bias, void* y, float* scratch);
// Computes dx from dy and the same weights.
void lanes_depthwise_data(const LanesConvolution& p, const void* dy, const float* weights, void* dx,
                          float* scratch);
// Scratch bytes of these, of the second if `back`.
size_t lanes_depthwise_scratch(const LanesConvolution& p, bool back);

}  // namespace lockstep::kernels::cpu
