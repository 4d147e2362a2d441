// Batch normalisation (Ioffe, Szegedy 2015).
#pragma once

#include <optional>

#include "lockstep/base/fields.h"
#include "lockstep/engine/kernels/kernel.h"

namespace lockstep::kernels {

// dst[n, c, ...] = scale[c] * (src[n, c, ...] - mean[c]) / sqrt(variance[c] + epsilon) + shift[c],
// then max(0, .) with `relu`, then the maximum over windows with `max_pool`. Training: mean and
// variance are those of src over n and space (variance divides by the count: biased) and are
// outputs. Otherwise they are inputs.
struct BatchNormalizationProblem {
  TensorSpec src;  // n x c or n x c x h x w
  double epsilon = 1e-5;
  bool relu = false;
  bool training = true;
  // Rows and columns of windows that lie side by side; what fills no window is left out. Only where
  // Table::normalization_with_max_pooling says so, for n x c x h x w.
  std::optional<Size2d> max_pool = {};
};
// Windows of max_pool hold at most so many elements.
inline constexpr int64_t kMostWindowElements = 255;
// Training: inputs src, scale (c), shift (c); outputs dst, mean (c), variance (c). One backward
// pass: diff src, diff scale, diff shift. Otherwise: inputs src, scale, shift, mean, variance;
// output dst; one backward pass: diff src, diff scale, diff shift.

}  // namespace lockstep::kernels
