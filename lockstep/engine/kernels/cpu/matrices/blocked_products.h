// Products of two matrices in f32, either of which may be transposed, in blocks for the caches. The
// bits are those of products.h. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lockstep::kernels::cpu {

// result (rows x columns) = a b, row-major. Sizes are >= 0; sums of no terms are 0. Memory may have
// any alignment that floats have.
struct BlockedProduct {
  int64_t rows = 0, terms = 0, columns = 0;
  bool a_transposed = false;  // a is terms x rows, otherwise rows x terms
  bool b_transposed = false;  // b is columns x terms, otherwise terms x columns
};

// Factors of the product that is computed next, which are fetched ahead; null: none.
struct NextFactors {
  const float *a = nullptr, *b = nullptr;
};

// Adds `bias` (columns) to the sums of each row; null: none. `scratch`: blocked_product_scratch()
// bytes.
void multiply(const BlockedProduct& p, const float* a, const float* b, const float* bias,
              float* result, void* scratch, const NextFactors& next = {});
size_t blocked_product_scratch();

}  // namespace lockstep::kernels::cpu
