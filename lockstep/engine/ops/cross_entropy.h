// Cross-entropy losses. One value per observation: means and sums over them are the caller's.
#pragma once

#include "lockstep/engine/autograd/tape.h"

namespace lockstep::ops {

// -log(probability of the label) of each observation: n values.
// probabilities: n x c; labels: n, i32, 0 <= label < c (others give NaN); or n x c, f32: the share
// of each class (one_hot(), or smoothed), for which it is -(sum of share x log(probability)).
// Throws InvalidArgument where shapes or types do not fit. Thread-safe.
Tensor cross_entropy(const Tensor& probabilities, const Tensor& labels);

// The same from logits: cross_entropy(softmax(logits), labels), exact for far apart logits.
Tensor softmax_cross_entropy(const Tensor& logits, const Tensor& labels);

// Inputs: probabilities, labels or shares; output: loss.
OpPtr make_cross_entropy();
// Inputs: logits, labels or shares; outputs: loss, probabilities (without a gradient of their own).
OpPtr make_softmax_cross_entropy();

}  // namespace lockstep::ops
