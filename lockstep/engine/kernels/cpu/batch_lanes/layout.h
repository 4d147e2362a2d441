// The layout in which the lanes of a vector hold different images of the batch: channels x rows x
// columns x n. Any number of channels fills vectors, and adjacent elements of a window are one
// vector apart. Thread-safe.
#pragma once

#include <cstdint>

#include "lockstep/engine/kernels/interface/kernel.h"

namespace lockstep::kernels::cpu {

// Lanes of the widest vectors. Sums over images have as many partial sums on every processor.
inline constexpr int64_t kLanes = 16;

// The number of images in this layout is a multiple of this: kLanes; 8 of f32 on processors with
// AVX2 and without AVX-512, whose vectors hold no more.
int64_t least_images(DType dtype);

// The spec of n x channels x rows x columns in this layout, f32 or bf16.
TensorSpec lanes_spec(const Shape& shape, DType dtype = DType::f32);
bool in_lanes(const TensorSpec& spec);

// Whether convolutions may choose this layout: on processors with AVX2. Without it the kernels
// work, but were not measured. choose_lanes_anywhere() allows the layout on any processor, for the
// whole process. For tests.
bool lanes_are_chosen();
void choose_lanes_anywhere(bool anywhere);

}  // namespace lockstep::kernels::cpu
