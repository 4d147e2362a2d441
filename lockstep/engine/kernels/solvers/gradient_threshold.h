// Gradient clipping and means of one parameter. Arrays are row-major.
#pragma once

#include <cstddef>

namespace lockstep::kernels {

// Number of elements in a block whose squares are summed. The last block may be shorter.
inline constexpr size_t kNormBlock = 1024;
constexpr size_t norm_blocks(size_t count) { return (count + kNormBlock - 1) / kNormBlock; }

namespace cpu {
// sums[b] = sum of x[i]^2 over block b, added in f64 from the first element to the last. The square
// of an f32 is exact in f64, so the bits depend only on this order.
void block_squares(const float* x, size_t count, double* sums);
// x[i] = min(max(x[i], -most), most). NaN stays NaN.
void limit(float* x, size_t count, float most);
// x[i] = x[i] / divisor.
void divide(float* x, size_t count, float divisor);
}  // namespace cpu

}  // namespace lockstep::kernels
