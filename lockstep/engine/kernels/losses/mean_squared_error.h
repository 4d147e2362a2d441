// Mean squared error.
#pragma once

#include "lockstep/engine/kernels/interface/kernel.h"

namespace lockstep::kernels {

// loss[n] = mean over the elements of observation n of (prediction - target)^2.
// Inputs: prediction, target (same shape). Output: loss (n). Both inputs have gradients.
struct MeanSquaredErrorProblem {
  TensorSpec prediction;
};

}  // namespace lockstep::kernels
