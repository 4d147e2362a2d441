// Convolution of images whose batch fills a vector's lanes. Its speed per channel does not depend
// on the number of channels, while oneDNN pads channels to blocks of 16 and multiplies zeros.
// Thread-safe; allocates nothing.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "lockstep/base/numeric/dtype.h"
#include "lockstep/engine/kernels/windows/window.h"

namespace lockstep::kernels::cpu {

// Images have the layout of batch_lanes/layout.h. Images and scratch memory are aligned to 64
// bytes; weights, biases and their gradients need no alignment. Elements outside the images count
// as 0.
struct LanesConvolution {
  int64_t n = 0, channels = 0, filters = 0;
  int64_t rows = 0, columns = 0;                // of the images
  int64_t result_rows = 0, result_columns = 0;  // at least 1
  Window window = {};                           // two axes, at most kMostKernel on each
  // Type of images, results and weights. bf16 is summed in f32. With AVX-512 it requires AVX-512
  // BF16.
  DType dtype = DType::f32;

  static constexpr int64_t kMostKernel = 11;

  int64_t window_elements() const { return window.kernel[0] * window.kernel[1]; }

  // Block sizes, so that data that is read again stays in the caches.
  static constexpr int64_t kFilterBlock = 32;
  int64_t channel_block() const {
    return std::min<int64_t>(64, std::max<int64_t>(4, 16 * 9 / window_elements()));
  }
  // Number of channels that lanes_convolution() sums at a time. Between blocks, the partial sums
  // are stored in the result, which would round bf16 sums.
  int64_t at_once(int64_t in) const {
    if (dtype == DType::bf16) return in;
    return std::min(in, std::max<int64_t>(8, 16 * 9 / window_elements()));
  }
  // Scratch bytes of lanes_convolution(), or if `back` of lanes_convolution_data().
  size_t scratch(bool back) const;
  // Scratch bytes of lanes_convolution_weights().
  size_t weights_scratch() const;
};

// Computes y (filters x result_rows x result_columns x n) from x (channels x rows x columns x n)
// and weights in the layout of batch_lanes/weights.h, neither turned nor for Winograd. `bias` has
// one element per filter, or is null.
void lanes_convolution(const LanesConvolution& p, const void* x, const void* weights,
                       const float* bias, void* y, float* scratch);
// Computes dx from dy and turned weights.
void lanes_convolution_data(const LanesConvolution& p, const void* dy, const void* weights,
                            void* dx, float* scratch);
// Computes dweights (filters x channels x window, row-major) from x and dy.
void lanes_convolution_weights(const LanesConvolution& p, const void* x, const void* dy,
                               float* dweights, float* scratch);
// Computes dbias (one element per filter) from dy.
void lanes_convolution_bias(const LanesConvolution& p, const void* dy, float* dbias);

}  // namespace lockstep::kernels::cpu
