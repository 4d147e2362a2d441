// Batch normalisation (Ioffe, Szegedy 2015).
#pragma once

#include "lockstep/engine/autograd/tape.h"

namespace lockstep::ops {

struct BatchNormalizationResult {
  Tensor y;         // the shape of x
  Tensor mean;      // c: mean of the batch over observations and space
  Tensor variance;  // c: variance of the batch, divided by the count (biased)
};

// y = scale * (x - mean) / sqrt(variance + epsilon) + shift for each channel, with the statistics
// of x itself. x: n x c or n x c x space (1 to 3 axes); scale, shift: c. The gradient flows through
// the statistics to x. No gradient flows back from the results mean and variance. Throws
// InvalidArgument if shapes do not fit. Thread-safe.
BatchNormalizationResult batch_normalization_training(const Tensor& x, const Tensor& scale,
                                                      const Tensor& shift, double epsilon = 1e-5);

// The same with given statistics (c elements each), which get no gradient.
Tensor batch_normalization(const Tensor& x, const Tensor& scale, const Tensor& shift,
                           const Tensor& mean, const Tensor& variance, double epsilon = 1e-5);

// Training: inputs x, scale, shift; outputs y, mean, variance. Otherwise: inputs x, scale, shift,
// mean, variance; output y. The op fuses with a relu that follows it, and then with a max pooling
// whose stride equals its window and which has no padding.
OpPtr make_batch_normalization(double epsilon, bool training);

}  // namespace lockstep::ops
