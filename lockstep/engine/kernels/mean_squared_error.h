// Mean squared error.
#pragma once

#include "lockstep/engine/kernels/kernel.h"

namespace lockstep::kernels {

// loss[n] = mean over the elements of observation n of (prediction - target)^2.
// Inputs: prediction, target (one shape). Output: loss (n). Gradients for both inputs.
struct MeanSquaredErrorProblem {
  TensorSpec prediction;
};

}  // namespace lockstep::kernels
