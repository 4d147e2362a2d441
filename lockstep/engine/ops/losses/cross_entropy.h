// Cross-entropy losses. They return one value per observation; the caller computes means or sums.
#pragma once

#include "lockstep/engine/autograd/tape.h"

namespace lockstep::ops {

// -log(probability of the label) of each observation: n values. probabilities: n x c. labels: n,
// i32, 0 <= label < c (other labels give NaN); or n x c, f32: the share of each class, one-hot (see
// one_hot()) or smoothed. With shares the loss is -(sum of share x log(probability)). Throws
// InvalidArgument if shapes or types do not fit. Thread-safe.
Tensor cross_entropy(const Tensor& probabilities, const Tensor& labels);

// The same from logits: cross_entropy(softmax(logits), labels). It stays exact for logits that are
// far apart.
Tensor softmax_cross_entropy(const Tensor& logits, const Tensor& labels);

// Inputs: probabilities, labels or shares; output: loss.
OpPtr make_cross_entropy();
// Inputs: logits, labels or shares. Outputs: loss, probabilities. No gradient flows back from the
// probabilities.
OpPtr make_softmax_cross_entropy();

}  // namespace lockstep::ops
