// The axis of an argmax or argmin, checked.
#pragma once

#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/engine/kernels/reductions/arg_reduce.h"
#include "lockstep/engine/kernels/shapes/split_axis.h"

namespace lockstep::kernels {

inline Shape without_axis(const Shape& shape, int axis) {
  std::vector<int64_t> dims = shape.dims();
  dims.erase(dims.begin() + axis);
  return Shape(dims);
}

// Throws InvalidArgument, naming the op, if src does not have the axis, is not f32 or has no
// elements along it.
inline SplitAxis arg_axis(const ArgReduceProblem& p) {
  const std::string op = p.smallest ? "argmin" : "argmax";
  const SplitAxis axis = split_axis(op, p.src.shape, p.axis);
  if (p.src.dtype != DType::f32) {
    throw InvalidArgument("[" + op + "] expected elements of f32, received " + p.src.to_string());
  }
  if (axis.size == 0) {
    throw InvalidArgument("[" + op + "] no elements along axis " + std::to_string(p.axis) +
                          ", input " + p.src.shape.to_string());
  }
  return axis;
}

}  // namespace lockstep::kernels
