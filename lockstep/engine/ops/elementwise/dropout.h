// Dropout (Srivastava et al. 2014) with keyed random numbers.
#pragma once

#include "lockstep/engine/autograd/tape.h"

namespace lockstep::ops {

// Each element becomes 0 with probability p and x / (1 - p) otherwise. The choice is a function of
// (step.seed, layer, step.iteration, position in the mini-batch, element) only, so it does not
// depend on the thread, worker or device that computes it. Row r of x is the observation at
// position step.first_row + r of the mini-batch. x: n x .... Throws InvalidArgument unless 0 <= p <
// 1. Thread-safe.
Tensor dropout(const Tensor& x, double p, uint64_t layer, const kernels::StepInfo& step);

OpPtr make_dropout(double p, uint64_t layer);

}  // namespace lockstep::ops
