// Matrices as the products of fully connected layers read them: vectors in panels of kPanel, each
// panel by element. Thread-safe.
#pragma once

#include <cstdint>

#include "lockstep/engine/tensor/spec.h"

namespace lockstep::kernels::cpu {

// Vectors of a panel: whole vectors of floats on every instruction set.
inline constexpr int64_t kPanel = 16;
constexpr int64_t panels_of(int64_t vectors) { return (vectors + kPanel - 1) / kPanel; }

// Most elements of a matrix, so that padded sizes can be counted: 2^50 bytes.
inline constexpr int64_t kMostInPanels = int64_t{1} << 48;

// The layout of vectors x elements, f32: panels x elements x the kPanel vectors of the panel. Zeros
// fill the last panel. Dimension 0 of the shape, at least 1, counts vectors, and the others count
// elements.
TensorSpec panels_spec(const Shape& shape);
bool in_panels(const TensorSpec& spec);

}  // namespace lockstep::kernels::cpu
