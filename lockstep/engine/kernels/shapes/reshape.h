// Reshape.
#pragma once

#include "lockstep/engine/kernels/interface/kernel.h"

namespace lockstep::kernels {

// The same elements in row-major order, with another shape.
struct ReshapeProblem {
  TensorSpec src;
  Shape dst;
};

}  // namespace lockstep::kernels
