// The axes and the order of a reduction, the same for all kernels.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/engine/kernels/interface/host_device.h"
#include "lockstep/engine/kernels/reductions/reduce.h"

namespace lockstep::kernels {

// a and b, of the elements from left to right, as one.
template <class T>
LOCKSTEP_HOST_DEVICE T join(Reduction kind, T a, T b) {
  switch (kind) {
    case Reduction::sum:
      return a + b;
    case Reduction::product:
      return a * b;
    case Reduction::maximum:
      return a > b || a != a ? a : b;
    case Reduction::minimum:
      break;
  }
  return a < b || a != a ? a : b;
}

template <class T>
inline constexpr T kInfinity = std::numeric_limits<T>::infinity();

// What changes nothing when it is joined.
template <class T>
LOCKSTEP_HOST_DEVICE T neutral_element(Reduction kind) {
  switch (kind) {
    case Reduction::sum:
      return 0;
    case Reduction::product:
      return 1;
    case Reduction::maximum:
      return -kInfinity<T>;
    case Reduction::minimum:
      break;
  }
  return kInfinity<T>;
}

// Axes with their extents, and the elements of src from one index to the next.
struct StridedAxes {
  std::vector<int64_t> dims, strides;

  int64_t positions() const {
    int64_t count = 1;
    for (const int64_t d : dims) count *= d;
    return count;
  }
};

// Lanes of the elements of a row.
inline constexpr int64_t kReduceLanes = 16;
// The most elements of a block of rows, and positions of a block of single elements.
inline constexpr int64_t kReduceBlock = 4096, kReducePositions = 256;

// Axes of one element are left out and neighbors of one kind are joined, so that kept and reduced
// axes alternate. The elements of a result are the rows along the last axis if that is reduced,
// else single elements, at the positions of the other reduced axes in row-major order. The order:
//
// - Blocks of `block_positions` positions, the last one the rest. If a row has more than
//   kReduceBlock elements, each position is cut into `segments` blocks of kReduceBlock elements of
//   its row.
// - In a block, element j of a row (of a segment) belongs to lane j mod kReduceLanes. Each lane
//   begins with the neutral element and takes its elements in order, position after position. Then
//   lane l takes lane l + 8 for l below 8, l + 4 for l below 4, l + 2 and l + 1. Single elements
//   are one lane.
// - The result begins with the neutral element and takes the blocks in order.
struct ReduceAxes {
  StridedAxes kept, reduced;  // `reduced` without the row
  int64_t row = 1;            // elements
  bool has_rows = false;      // the last axis is reduced
  int64_t block_positions = 1, segments = 1;

  int64_t position_blocks() const {
    return (reduced.positions() + block_positions - 1) / block_positions;
  }
};

inline ReduceAxes reduce_axes(const ReduceProblem& p) {
  const Shape& shape = p.src.shape;
  for (size_t i = 0; i < p.axes.size(); ++i) {
    const bool known = p.axes[i] >= 0 && p.axes[i] < shape.rank();
    if (!known || (i > 0 && p.axes[i] <= p.axes[i - 1])) {
      throw InvalidArgument("[reduce] axis " + std::to_string(p.axes[i]) + " of " +
                            shape.to_string() + " is not there, or not in order");
    }
  }
  if (p.src.dtype != DType::f32) {
    throw InvalidArgument("[reduce] computes in f32, not with " + p.src.to_string());
  }
  ReduceAxes a;
  int64_t elements = 1;  // of the axes after this one
  int last = -1;         // the kind of the axis after this one; -1: there is none
  for (int axis = shape.rank(); axis-- > 0;) {
    const int64_t dim = shape[axis];
    if (dim == 1) continue;
    const int kind = std::count(p.axes.begin(), p.axes.end(), axis) > 0 ? 1 : 0;
    a.has_rows = a.has_rows || (last < 0 && kind == 1);
    StridedAxes& to = kind == 1 ? a.reduced : a.kept;
    if (kind == last) {
      to.dims.front() *= dim;
    } else {
      to.dims.insert(to.dims.begin(), dim);
      to.strides.insert(to.strides.begin(), elements);
    }
    last = kind;
    elements *= dim;
  }
  if (!a.has_rows) {
    a.block_positions = kReducePositions;
    return a;
  }
  a.row = a.reduced.dims.back();
  a.reduced.dims.pop_back();
  a.reduced.strides.pop_back();
  a.segments = std::max<int64_t>((a.row + kReduceBlock - 1) / kReduceBlock, 1);
  a.block_positions = std::max<int64_t>(kReduceBlock / std::max<int64_t>(a.row, 1), 1);
  return a;
}

}  // namespace lockstep::kernels
