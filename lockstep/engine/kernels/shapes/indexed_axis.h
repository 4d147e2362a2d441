// The axes of taking and of scattering, the same for all kernels.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/engine/kernels/shapes/indices.h"
#include "lockstep/engine/kernels/shapes/scatter_add.h"
#include "lockstep/engine/kernels/shapes/split_axis.h"
#include "lockstep/engine/tensor/spec.h"

namespace lockstep::kernels {

struct IndexedAxis {
  SplitAxis x;        // what is taken from, or added to
  int64_t count = 0;  // indices along the axis
  bool per_element = false, wide = false;
  Shape taken;  // what taking gives

  Indices indices(const void* data) const { return {data, wide}; }
};

// Throws InvalidArgument, naming the op, if the axis or the indices do not fit.
inline IndexedAxis indexed_axis(std::string_view op, const Shape& x, const TensorSpec& indices,
                                int axis, bool per_element) {
  const auto refuse = [&](const std::string& expected) {
    throw InvalidArgument("[" + std::string(op) + "] expected " + expected + ", received " +
                          indices.to_string() + " for axis " + std::to_string(axis) + " of " +
                          x.to_string());
  };
  IndexedAxis result{.x = split_axis(op, x, axis),
                     .count = 1,
                     .per_element = per_element,
                     .wide = indices.dtype == DType::i64,
                     .taken = {}};
  if (indices.dtype != DType::i32 && indices.dtype != DType::i64) {
    refuse("indices of i32 or i64");
  }
  const Shape& of = indices.shape;
  if (per_element) {
    bool fits = of.rank() == x.rank();
    for (int a = 0; fits && a < x.rank(); ++a) fits = a == axis || of[a] == x[a];
    if (!fits) refuse("indices of the shape of x, but for the axis");
    result.count = of[axis];
    result.taken = of;
    return result;
  }
  result.count = of.elements();
  std::vector<int64_t> dims = x.dims();
  dims.erase(dims.begin() + axis);
  dims.insert(dims.begin() + axis, of.dims().begin(), of.dims().end());
  result.taken = Shape(dims);
  return result;
}

// Of the elements that are added to. Throws InvalidArgument if the operands do not fit.
inline IndexedAxis scattered_axis(const ScatterAddProblem& p) {
  IndexedAxis axis = indexed_axis("scatter_add", p.dst, p.indices, p.axis, p.per_element);
  if (p.updates.dtype != DType::f32 || !(p.updates.shape == axis.taken)) {
    throw InvalidArgument("[scatter_add] expected updates of " + axis.taken.to_string() +
                          " f32, received " + p.updates.to_string());
  }
  return axis;
}

}  // namespace lockstep::kernels
