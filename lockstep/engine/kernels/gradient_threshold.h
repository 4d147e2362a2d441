// What gradient clipping computes from a learnable's gradient. Arrays are row-major.
#pragma once

#include <cstddef>

namespace lockstep::kernels {

// Squares are summed by blocks of so many elements; the last one may be shorter.
inline constexpr size_t kNormBlock = 1024;
constexpr size_t norm_blocks(size_t count) { return (count + kNormBlock - 1) / kNormBlock; }

namespace cpu {
// sums[b] = x[i]^2 over block b, added in f64 from its first element to its last. A square of an
// f32 is exact in f64, so this order is all that the bits depend on.
void block_squares(const float* x, size_t count, double* sums);
// x[i] = min(max(x[i], -most), most); what is not a number stays.
void limit(float* x, size_t count, float most);
}  // namespace cpu

}  // namespace lockstep::kernels
