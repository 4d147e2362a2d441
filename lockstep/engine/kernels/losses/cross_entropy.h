// Cross-entropy.
#pragma once

#include "lockstep/engine/kernels/interface/kernel.h"

namespace lockstep::kernels {

// Cross-entropy of each observation: loss[n] = -log(probability of its label), or with `shares`
// -(sum over classes of share x log(probability)).
// Inputs: scores (n x c; logits if `from_logits`, else probabilities), and labels (n, i32) or
// shares (n x c, f32, with a gradient). Outputs: loss (n), and if `from_logits` the probabilities
// (n x c), which have no gradient. A label outside 0..c-1 gives the loss NaN. A class with a share
// of 0 adds nothing to the loss, whatever its probability.
struct CrossEntropyProblem {
  TensorSpec scores;
  bool from_logits = false;
  bool shares = false;
};

}  // namespace lockstep::kernels
