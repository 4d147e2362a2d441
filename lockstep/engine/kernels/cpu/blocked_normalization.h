// Batch normalisation, ReLU and maximum over windows of images in layouts whose innermost dimension
// fills vectors: blocks of channels, or the images themselves (lanes_layout.h). Each direction
// takes two passes over memory. oneDNN takes three for the statistics and the normalisation, writes
// past the caches, and pools in a pass of its own. All functions are thread-safe; none allocates.
#pragma once

#include <cstdint>

#include "lockstep/base/dtype.h"

namespace lockstep::kernels::cpu {

// Images of n x channels x rows x columns, laid out as n x blocks x rows x columns x block: the
// channels in blocks of 8 or 16, the last one filled up with zeros. Or, with `images_in_lanes`, as
// channels x rows x columns x n, n a multiple of 16; `block` is n then. Windows of window_rows x
// window_columns lie side by side; rows and columns that fill none are normalised for the
// statistics and the gradient but belong to no maximum. A window of 1 x 1 leaves all as it is.
struct BlockedNormalization {
  int64_t n = 0, channels = 0, rows = 0, columns = 0;
  int64_t block = 16;  // elements from column to column
  bool images_in_lanes = false;
  int64_t window_rows = 1, window_columns = 1;
  float epsilon = 1e-5f;
  DType dtype = DType::f32;  // of x, y, dx and dy; or bf16, computed with as f32
  bool relu = false;
  bool training = true;  // the gradient goes through the statistics

  // Groups of planes that lie one behind the other: blocks of channels of an image, or channels.
  int64_t blocks() const { return images_in_lanes ? channels : (channels + block - 1) / block; }
  int64_t result_rows() const { return rows / window_rows; }
  int64_t result_columns() const { return columns / window_columns; }
  // Marks that are kept for the backward pass: one for each element of the result, filling
  // included; none where a window is one element, whose result is as easily had again.
  int64_t marks() const {
    if (window_rows * window_columns == 1) return 0;
    return (images_in_lanes ? 1 : n) * blocks() * result_rows() * result_columns() * block;
  }
};

// y and `marks` (which element of its window each result is; none of them: 255), by x's own mean
// and variance (biased), which are written, or by those given. scale, shift, mean and variance have
// one element for each channel.
void blocked_normalization(const BlockedNormalization& p, const void* x, const float* scale,
                           const float* shift, float* mean, float* variance, void* y,
                           uint8_t* marks);
void blocked_normalization_with(const BlockedNormalization& p, const void* x, const float* scale,
                                const float* shift, const float* mean, const float* variance,
                                void* y, uint8_t* marks);

// dx, dscale and dshift from x, dy, what forward was given and what it gave.
void blocked_normalization_backward(const BlockedNormalization& p, const void* x, const void* dy,
                                    const float* scale, const float* shift, const float* mean,
                                    const float* variance, const uint8_t* marks, void* dx,
                                    float* dscale, float* dshift);

}  // namespace lockstep::kernels::cpu
