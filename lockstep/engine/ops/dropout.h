// Dropout (Srivastava et al. 2014), keyed.
#pragma once

#include "lockstep/engine/autograd/tape.h"

namespace lockstep::ops {

// Each element is 0 with probability p and x / (1 - p) otherwise. Which ones is a function of
// (step.seed, layer, step.iteration, position in the mini-batch, element), never of who computes:
// the observation in row r of x has position step.first_row + r.
// x: n x ...; 0 <= p < 1, else InvalidArgument. Thread-safe.
Tensor dropout(const Tensor& x, double p, uint64_t layer, const kernels::StepInfo& step);

OpPtr make_dropout(double p, uint64_t layer);

}  // namespace lockstep::ops
