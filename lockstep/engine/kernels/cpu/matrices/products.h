// Products of matrices in f32, and in bf16 with sums in f32, whose bits depend on the factors
// alone: not on the number of rows that are computed together, and not on the instruction set.
// Every element of a result is a sum over blocks of kSumBlock consecutive terms, added from first
// to last. The sum of a block begins with 0 and adds its products in order, each by one fused
// multiplication and addition. Of bf16 factors it adds pairs of products in order, the second
// product of a pair before the first, as the instruction vdpbf16ps does; a product with zeros
// completes the last pair. That instruction treats subnormal numbers as zero, as ArithmeticMode
// does. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lockstep/base/numeric/bfloat16.h"
#include "lockstep/base/numeric/index_range.h"
#include "lockstep/engine/kernels/cpu/matrices/panels.h"

namespace lockstep::kernels::cpu {

// Terms of a block. Of bf16 it is longer, because results in f32 are larger than the factors and
// are read and written once for each block.
template <class T>
inline constexpr int64_t kSumBlock = kTogether<T> > 1 ? 1024 : 256;

// result (rows x columns) = a (rows x terms) b (terms x columns), all row-major. Each size is >= 0;
// sums of no terms are 0. Memory may have any alignment that floats have.
struct Product {
  int64_t rows = 0, terms = 0, columns = 0;
};

// `b_panels`: the columns of b in panels (panels.h) of the type of a. Adds `bias` (columns) to the
// sums of each row; null: none. `scratch`: product_scratch() bytes.
void multiply_panels(const Product& p, const float* a, const float* b_panels, const float* bias,
                     float* result, void* scratch);
void multiply_panels(const Product& p, const BFloat16* a, const BFloat16* b_panels,
                     const float* bias, float* result, void* scratch);
// The same of at most kMostSharedRows rows, without scratch memory. The PassThreads share columns.
inline constexpr int64_t kMostSharedRows = 2;
void share_panels(const Product& p, const float* a, const float* b_panels, const float* bias,
                  float* result);
void share_panels(const Product& p, const BFloat16* a, const BFloat16* b_panels, const float* bias,
                  float* result);
// b is rounded to bf16. Products of two f32 matrices: blocked_products.h.
void multiply(const Product& p, const BFloat16* a, const float* b, float* result, void* scratch);
size_t product_scratch();

}  // namespace lockstep::kernels::cpu
