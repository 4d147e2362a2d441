// Elements along an axis, chosen by indices.
#pragma once

#include "lockstep/engine/kernels/interface/kernel.h"

namespace lockstep::kernels {

// src is o x size x i with the axis in the middle (split_axis.h).
//
// - By default an index chooses a whole i: dst[o, j, i] = src[o, indices[j], i]. In place of the
//   axis dst has the axes of the indices, any number.
// - per_element: dst[o, j, i] = src[o, indices[o, j, i], i]. The indices have the shape of src but
//   for the extent of the axis, and dst has the shape of the indices.
//
// An index outside of 0 to size - 1 reads nothing: it gives NaN, or 0 where src is not f32 or
// `zero_outside`.
struct TakeProblem {
  TensorSpec src;      // f32, i32, i64 or u8
  TensorSpec indices;  // i32 or i64
  int axis = 0;
  bool per_element = false;
  bool zero_outside = false;
};
// Inputs: src, indices. Output: dst, of the type of src. A forward pass alone.

}  // namespace lockstep::kernels
