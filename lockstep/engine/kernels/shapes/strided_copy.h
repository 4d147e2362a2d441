// Copies between row-major memory and elements that are given by strides.
#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/engine/kernels/interface/kernel.h"

namespace lockstep::kernels {

// Transposes, slices with steps, flips, expansions (stride 0), windows; and their adjoints for
// those that take no element twice.
struct StridedCopyProblem {
  TensorSpec src;  // f32, i32, i64 or u8; dst has the same type
  Shape dst;
  int64_t offset = 0;            // in elements
  std::vector<int64_t> strides;  // in elements, may be 0 or negative
  // false: dst[i_0, i_1, ...] = src[offset + sum of i_k * strides[k]]; strides: one for each axis
  // of dst.
  // true: dst is zeros, then dst[offset + sum of i_k * strides[k]] = src[i_0, i_1, ...]; strides:
  // one for each axis of src. No two elements may have one index.
  bool scatter = false;
};
// Input: src. Output: dst. There is no backward pass: gradients are strided copies and sums, too.

}  // namespace lockstep::kernels
