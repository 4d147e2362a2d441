// Concatenation.
#pragma once

#include <vector>

#include "lockstep/engine/kernels/interface/kernel.h"

namespace lockstep::kernels {

// Joins the inputs in order along `axis`.
struct ConcatenationProblem {
  std::vector<TensorSpec> src;
  int axis = 1;
};

}  // namespace lockstep::kernels
