// The layout in which images of a batch lie side by side, one in each lane of a vector: channels x
// rows x columns x n. Any number of channels fills vectors, and every element of a window is one
// vector away from the next. Thread-safe.
#pragma once

#include <cstdint>

#include "lockstep/engine/kernels/kernel.h"

namespace lockstep::kernels::cpu {

// Images are taken in this layout in multiples of so many.
inline constexpr int64_t kLanes = 16;

// n x channels x rows x columns in this layout, f32 or bf16.
TensorSpec lanes_spec(const Shape& shape, DType dtype = DType::f32);
bool in_lanes(const TensorSpec& spec);

// Whether convolutions may choose this layout: where oneDNN has AVX-512, without which the kernels
// work but were not measured. For tests, they may anywhere from now on, in the whole process.
bool lanes_are_chosen();
void choose_lanes_anywhere(bool anywhere);

}  // namespace lockstep::kernels::cpu
