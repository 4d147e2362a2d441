// Batch normalisation (Ioffe, Szegedy 2015).
#pragma once

#include "lockstep/engine/autograd/tape.h"

namespace lockstep::ops {

struct BatchNormalizationResult {
  Tensor y;         // the shape of x
  Tensor mean;      // c: mean of this batch, over observations and space
  Tensor variance;  // c: its variance, divided by the count (biased)
};

// y = scale * (x - mean) / sqrt(variance + epsilon) + shift, channel by channel, with the
// statistics of x itself. x: n x c or n x c x h x w; scale, shift: c. The gradient goes through the
// statistics into x; mean and variance as results have no gradient of their own.
// Throws InvalidArgument where shapes do not fit. Thread-safe.
BatchNormalizationResult batch_normalization_training(const Tensor& x, const Tensor& scale,
                                                      const Tensor& shift, double epsilon = 1e-5);

// The same with given statistics (c each), which get no gradient.
Tensor batch_normalization(const Tensor& x, const Tensor& scale, const Tensor& shift,
                           const Tensor& mean, const Tensor& variance, double epsilon = 1e-5);

// Training: inputs x, scale, shift; outputs y, mean, variance. Otherwise inputs x, scale, shift,
// mean, variance; output y. Fuses with a following relu, and then with
// a maximum over windows side by side.
OpPtr make_batch_normalization(double epsilon, bool training);

}  // namespace lockstep::ops
