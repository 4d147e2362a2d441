// Batch normalization (Ioffe, Szegedy 2015).
#pragma once

#include <optional>

#include "lockstep/base/fields.h"
#include "lockstep/engine/kernels/interface/kernel.h"

namespace lockstep::kernels {

// dst[n, c, ...] = scale[c] * (src[n, c, ...] - mean[c]) / sqrt(variance[c] + epsilon) + shift[c],
// then max(0, .) if `relu`, then the maximum over windows if `max_pool`. In training, mean and
// variance are computed from src over n and space, and are outputs; the variance is biased (divided
// by the count). Otherwise they are inputs.
struct BatchNormalizationProblem {
  TensorSpec src;  // n x c or n x c x h x w
  double epsilon = 1e-5;
  bool relu = false;
  bool training = true;
  // Size of the non-overlapping pooling windows. Rows and columns that fill no window are dropped.
  // Only for n x c x h x w, and only if Table::normalization_with_max_pooling.
  std::optional<Size2d> max_pool = {};
  // Adds a bias to src first: the last input (c). Only if Table::normalization_with_bias.
  bool bias = false;
};
// Largest number of elements in a window of max_pool.
inline constexpr int64_t kMostWindowElements = 255;
// In training: inputs src, scale (c), shift (c); outputs dst, mean (c), variance (c). Otherwise:
// inputs src, scale, shift, mean, variance; output dst. One backward pass in both cases: diff src,
// diff scale, diff shift, and diff bias, which is exactly 0 in training: the mean takes a bias
// away.

}  // namespace lockstep::kernels
