// Gradient clipping and means of one parameter. Arrays are row-major and have `count` elements.
//
// block_squares: sums[b] = sum of x[i]^2 over block b, added in f64 from the first element to the
// last. The square of an f32 is exact in f64, so the bits depend only on this order. `sums` has
// norm_blocks(count) elements.
// limit: x[i] = min(max(x[i], -most), most). NaN stays NaN.
// divide: x[i] = x[i] / divisor.
#pragma once

#include <cstddef>

namespace lockstep::kernels {

// Number of elements in a block whose squares are summed. The last block may be shorter.
inline constexpr size_t kNormBlock = 1024;
constexpr size_t norm_blocks(size_t count) { return (count + kNormBlock - 1) / kNormBlock; }

}  // namespace lockstep::kernels
