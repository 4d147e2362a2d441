// Concatenation.
#pragma once

#include <vector>

#include "lockstep/engine/kernels/kernel.h"

namespace lockstep::kernels {

// Inputs one behind the other along `axis`.
struct ConcatenationProblem {
  std::vector<TensorSpec> src;
  int axis = 1;
};

}  // namespace lockstep::kernels
