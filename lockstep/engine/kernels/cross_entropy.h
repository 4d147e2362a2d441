// Cross-entropy.
#pragma once

#include "lockstep/engine/kernels/kernel.h"

namespace lockstep::kernels {

// Cross-entropy of each observation: loss[n] = -log(probability of its label).
// Inputs: scores (n x c; logits with `from_logits`, else probabilities) and labels (n, i32).
// Outputs: loss (n), and with `from_logits` the probabilities (n x c), which have no gradient.
// A label outside 0..c-1 gives the loss NaN.
struct CrossEntropyProblem {
  TensorSpec scores;
  bool from_logits = false;
};

}  // namespace lockstep::kernels
