// The axes of a row-major tensor in three parts: those before one axis, the axis, those after it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "lockstep/base/error.h"
#include "lockstep/base/numeric/shape.h"

namespace lockstep::kernels {

struct SplitAxis {
  int64_t outer = 1, size = 1, inner = 1;
};

// Throws InvalidArgument, naming the op, unless 0 <= axis < rank.
inline SplitAxis split_axis(std::string_view op, const Shape& shape, int axis) {
  if (axis < 0 || axis >= shape.rank()) {
    throw InvalidArgument("[" + std::string(op) + "] " + shape.to_string() + " has no axis " +
                          std::to_string(axis));
  }
  SplitAxis split;
  for (int a = 0; a < axis; ++a) split.outer *= shape[a];
  split.size = shape[axis];
  for (int a = axis + 1; a < shape.rank(); ++a) split.inner *= shape[a];
  return split;
}

}  // namespace lockstep::kernels
