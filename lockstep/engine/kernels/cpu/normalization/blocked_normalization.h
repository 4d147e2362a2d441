// Batch normalization, ReLU and maximum over windows for layouts whose innermost dimension fills
// vectors: blocks of channels, or images (batch_lanes/layout.h). Each direction takes two passes
// over memory. oneDNN takes three for statistics and normalization, writes past the caches, and
// pools in a pass of its own. All functions are thread-safe and allocate nothing.
#pragma once

#include <cstdint>

#include "lockstep/base/numeric/dtype.h"

namespace lockstep::kernels::cpu {

// Images of n x channels x rows x columns, with the layout n x blocks x rows x columns x block:
// channels in blocks of 8 or 16, the last block padded with zeros. With `images_in_lanes` the
// layout is channels x rows x columns x n, where n is a multiple of 16 and `block` is n. Windows of
// window_rows x window_columns do not overlap. Rows and columns outside all windows count for the
// statistics and the gradient, but for no maximum. Windows of 1 x 1 leave the images unpooled.
struct BlockedNormalization {
  int64_t n = 0, channels = 0, rows = 0, columns = 0;
  int64_t block = 16;  // elements between adjacent columns
  bool images_in_lanes = false;
  int64_t window_rows = 1, window_columns = 1;
  float epsilon = 1e-5f;
  DType dtype = DType::f32;  // of x, y, dx and dy: f32, or bf16 computed in f32
  bool relu = false;
  bool training = true;  // the gradient includes the statistics' part

  // Groups of planes in consecutive memory: blocks of channels of an image, or channels.
  int64_t blocks() const { return images_in_lanes ? channels : (channels + block - 1) / block; }
  int64_t result_rows() const { return rows / window_rows; }
  int64_t result_columns() const { return columns / window_columns; }
  // Number of marks kept for the backward pass: one per element of the result, including padding.
  // None for windows of one element, where backward recomputes the result.
  int64_t marks() const {
    if (window_rows * window_columns == 1) return 0;
    return (images_in_lanes ? 1 : n) * blocks() * result_rows() * result_columns() * block;
  }
};

// Compute y and `marks`: the index in its window of the element that gives each result, or 255 if
// none does. The first uses x's own mean and biased variance and writes them; the second uses given
// ones. scale, shift, mean and variance have one element per channel, and so has `rest`: what the
// mean is above its float, if the mean is so far from 0 that this matters, and else 0.
void blocked_normalization(const BlockedNormalization& p, const void* x, const float* scale,
                           const float* shift, float* mean, float* variance, float* rest, void* y,
                           uint8_t* marks);
void blocked_normalization_with(const BlockedNormalization& p, const void* x, const float* scale,
                                const float* shift, const float* mean, const float* variance,
                                void* y, uint8_t* marks);

// Computes dx, dscale and dshift from x, dy, and the arguments and results of forward. `rest` is
// null for given statistics.
void blocked_normalization_backward(const BlockedNormalization& p, const void* x, const void* dy,
                                    const float* scale, const float* shift, const float* mean,
                                    const float* variance, const float* rest, const uint8_t* marks,
                                    void* dx, float* dscale, float* dshift);

}  // namespace lockstep::kernels::cpu
