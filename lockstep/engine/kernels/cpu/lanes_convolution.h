// Convolution of images whose batch lies in a vector's lanes: of any number of channels as fast as
// of 16, where oneDNN fills channels up to blocks of 16 and multiplies zeros. Thread-safe; nothing
// allocates.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "lockstep/base/dtype.h"
#include "lockstep/engine/kernels/window.h"

namespace lockstep::kernels::cpu {

// Images lie as lanes_layout.h says, n a multiple of kLanes. They and scratch memory lie at
// multiples of 64 bytes; weights, biases and their gradients anywhere. Zeros surround the images,
// as many as windows reach.
struct LanesConvolution {
  int64_t n = 0, channels = 0, filters = 0;
  int64_t rows = 0, columns = 0;                // of images
  int64_t result_rows = 0, result_columns = 0;  // at least 1
  Window window = {};                           // of two axes, kMostKernel on each at most
  // Of images, results and weights. bf16 is added up as f32 and needs instructions for it where
  // there is AVX-512.
  DType dtype = DType::f32;

  static constexpr int64_t kMostKernel = 11;

  int64_t places() const { return window.kernel[0] * window.kernel[1]; }

  // So many are taken at a time, so that what is read again stays in the caches.
  static constexpr int64_t kFilterBlock = 32;
  int64_t channel_block() const {
    return std::min<int64_t>(64, std::max<int64_t>(4, 16 * 9 / places()));
  }
  // Channels that lanes_convolution() takes at a time: sums over them are kept in the result
  // meanwhile, which must not round them.
  int64_t at_once(int64_t in) const {
    if (dtype == DType::bf16) return in;
    return std::min(in, std::max<int64_t>(8, 16 * 9 / places()));
  }
  // Bytes that lanes_convolution() needs, or `back` lanes_convolution_data().
  size_t scratch(bool back) const;
  // Those that lanes_convolution_weights() needs.
  size_t weights_scratch() const;
};

// y: filters x result_rows x result_columns x n, from x: channels x rows x columns x n, and weights
// as lanes_weights.h has them, neither turned nor Winograd's. `bias`: by filter, or null.
void lanes_convolution(const LanesConvolution& p, const void* x, const void* weights,
                       const float* bias, void* y, float* scratch);
// dx from dy and turned weights.
void lanes_convolution_data(const LanesConvolution& p, const void* dy, const void* weights,
                            void* dx, float* scratch);
// dweights, filters x channels x window row-major, from x and dy.
void lanes_convolution_weights(const LanesConvolution& p, const void* x, const void* dy,
                               float* dweights, float* scratch);
// dbias, by filter, from dy.
void lanes_convolution_bias(const LanesConvolution& p, const void* dy, float* dbias);

}  // namespace lockstep::kernels::cpu
