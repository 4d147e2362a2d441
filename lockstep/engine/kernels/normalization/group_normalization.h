// Group normalization (Wu, He 2018). One group gives layer normalization, and one group per channel
// gives instance normalization.
#pragma once

#include "lockstep/engine/kernels/interface/kernel.h"

namespace lockstep::kernels {

// Values that forward keeps for backward, for each observation and group.
struct GroupStatistics {
  // The mean is the sum of two numbers. For a mean far from zero, one float would be too coarse in
  // comparison with the deviation.
  float mean = 0, mean_rest = 0;
  float inverse_deviation = 0;  // 1 / sqrt(variance + epsilon)
};

// dst[n, c, ...] = scale[c] * (src[n, c, ...] - mean) / sqrt(variance + epsilon) + shift[c]. Mean
// and biased variance are those of the channel's group in observation n, over its channels and
// space.
// Inputs: src, scale (c), shift (c). Output: dst. One backward pass: diff src, diff scale, diff
// shift.
struct GroupNormalizationProblem {
  TensorSpec src;      // n x c or n x c x h x w
  int64_t groups = 1;  // divides c
  double epsilon = 1e-5;
};

}  // namespace lockstep::kernels
