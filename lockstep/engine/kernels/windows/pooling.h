// Pooling along one, two or three axes.
#pragma once

#include "lockstep/engine/kernels/interface/kernel.h"
#include "lockstep/engine/kernels/windows/window.h"

namespace lockstep::kernels {

struct PoolingProblem {
  enum class Kind : uint8_t { max, average_with_padding, average_without_padding };
  TensorSpec src;  // n x c x space (ih x iw)
  Shape dst;       // n x c x oh x ow
  Window window;
  Kind kind = Kind::max;
};
// Input: src. Output: dst. One backward pass: diff src. The gradient of a maximum goes to the first
// of equal elements. average_with_padding always divides by the size of the whole window.

}  // namespace lockstep::kernels
