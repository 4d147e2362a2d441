// Softmax.
#pragma once

#include "lockstep/engine/kernels/interface/kernel.h"

namespace lockstep::kernels {

// dst = exp(src) / sum over channels of exp(src), for n x c and n x c x h x w.
struct SoftmaxProblem {
  TensorSpec src;
};

}  // namespace lockstep::kernels
