// Positions of the largest or the smallest elements along an axis.
#pragma once

#include "lockstep/engine/kernels/interface/host_device.h"
#include "lockstep/engine/kernels/interface/kernel.h"

namespace lockstep::kernels {

// dst: src's shape without the axis, i64: the position of the first of the largest (smallest)
// elements. The first NaN wins. The axis has at least one element.
struct ArgReduceProblem {
  TensorSpec src;  // f32
  int axis = 0;
  bool smallest = false;
};
// A forward pass alone.

// Whether x, which comes later, wins over `best`.
LOCKSTEP_HOST_DEVICE inline bool wins(bool smallest, float x, float best) {
  return (smallest ? x < best : x > best) || (x != x && best == best);
}

}  // namespace lockstep::kernels
