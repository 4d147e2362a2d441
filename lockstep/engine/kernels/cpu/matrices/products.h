// Products of matrices in f32 whose bits depend on the factors alone: not on the number of rows
// that are computed together, and not on the instruction set. Every element of a result is a sum
// over blocks of kSumBlock consecutive terms, added from first to last. The sum of a block begins
// with 0 and adds its products in order, each by one fused multiplication and addition.
// Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lockstep::kernels::cpu {

inline constexpr int64_t kSumBlock = 256;

// result (rows x columns) = a (rows x terms) b (terms x columns), all row-major. Each size is >= 0;
// sums of no terms are 0. Memory may have any alignment that floats have.
struct Product {
  int64_t rows = 0, terms = 0, columns = 0;
};

// `b_panels`: the columns of b in panels (panels.h). Adds `bias` (columns) to the sums of each row;
// null: none.
void multiply_panels(const Product& p, const float* a, const float* b_panels, const float* bias,
                     float* result);
// `scratch`: product_scratch() bytes.
void multiply(const Product& p, const float* a, const float* b, float* result, void* scratch);
size_t product_scratch();

}  // namespace lockstep::kernels::cpu
