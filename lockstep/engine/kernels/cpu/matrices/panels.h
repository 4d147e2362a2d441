// Matrices as the products of fully connected layers read them: vectors in panels of kPanel, each
// panel by element. Thread-safe.
#pragma once

#include <cstdint>

#include "lockstep/base/numeric/bfloat16.h"
#include "lockstep/engine/tensor/spec.h"

namespace lockstep::kernels::cpu {

// Numbers of one step of a sum of products: one f32, or a pair of bf16. They lie together.
template <class T>
inline constexpr int64_t kTogether = static_cast<int64_t>(sizeof(float) / sizeof(T));
template <class T>
constexpr int64_t steps_of(int64_t terms) {
  return (terms + kTogether<T> - 1) / kTogether<T>;
}

// Vectors of a panel: whole vectors of floats on every instruction set.
inline constexpr int64_t kPanel = 16;
constexpr int64_t panels_of(int64_t vectors) { return (vectors + kPanel - 1) / kPanel; }

// Most elements of a matrix, so that padded sizes can be counted: 2^50 bytes.
inline constexpr int64_t kMostInPanels = int64_t{1} << 48;

// The layout of vectors x elements: panels x steps x the kPanel vectors of the panel x the numbers
// of a step. Zeros fill the last panel and the last step. Dimension 0 of the shape, at least 1,
// counts vectors, and the others count elements. `dtype`: f32 or bf16, the type of the numbers in
// the panels, which are rounded. The spec says f32, as row-major memory has.
TensorSpec panels_spec(const Shape& shape, DType dtype = DType::f32);
bool in_panels(const TensorSpec& spec);

// Makes one panel of `count` <= kPanel vectors of `elements` elements each, which begin `stride`
// elements apart. Zeros fill the panel and its last step.
void pack_panel(const float* from, int64_t stride, int64_t elements, int64_t count, float* to);
void pack_panel(const float* from, int64_t stride, int64_t elements, int64_t count, BFloat16* to);

}  // namespace lockstep::kernels::cpu
