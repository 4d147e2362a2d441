// Another shape for the same elements.
#pragma once

#include "lockstep/engine/kernels/kernel.h"

namespace lockstep::kernels {

// The same elements in row-major order, seen as another shape.
struct ReshapeProblem {
  TensorSpec src;
  Shape dst;
};

}  // namespace lockstep::kernels
