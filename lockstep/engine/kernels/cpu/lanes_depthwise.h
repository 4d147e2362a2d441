// Convolution of each channel by itself, of images whose batch lies in a vector's lanes.
// Thread-safe; nothing allocates, no scratch memory is needed.
#pragma once

#include "lockstep/engine/kernels/cpu/lanes_convolution.h"

namespace lockstep::kernels::cpu {

// `p` as in lanes_convolution.h, `filters` being a multiple of `channels`: those of a channel lie
// one behind the other. Weights: filters x window, row-major f32; sums are f32. `bias`: by filter,
// or null.
void lanes_depthwise(const LanesConvolution& p, const void* x, const float* weights,
                     const float* bias, void* y);
// dx from dy and the same weights.
void lanes_depthwise_data(const LanesConvolution& p, const void* dy, const float* weights,
                          void* dx);

}  // namespace lockstep::kernels::cpu
