// Exponentials of a row, computed by one block. Shared by softmax and cross-entropy.
#pragma once

#include "lockstep/engine/kernels/cuda/reduction.h"
#include "lockstep/engine/kernels/elementwise/functions.h"

namespace lockstep::kernels::cuda {

struct RowSum {
  float top;     // the largest element
  double total;  // sum of exp(x - top)
  double log_total;
  __device__ RowSum(float of_top, double of_total)
      : top(of_top), total(of_total), log_total(in_double::logarithm(of_total)) {}
  // -log(probability) of an element.
  __device__ double surprise(float x) const { return log_total - static_cast<double>(x - top); }
};

__device__ inline float row_top(const float* x, int64_t n, double* shared) {
  float top = x[0];
  for (int64_t c = threadIdx.x; c < n; c += blockDim.x) top = Greater{}(top, x[c]);
  return static_cast<float>(block_reduce(static_cast<double>(top), shared, Greater{}));
}

// Sums a row x of n elements. `shared` has one double per thread.
__device__ inline RowSum row_sum(const float* x, int64_t n, double* shared) {
  const float top = row_top(x, n, shared);
  double total = 0;
  for (int64_t c = threadIdx.x; c < n; c += blockDim.x) {
    total += static_cast<double>(exponential(x[c] - top));
  }
  return {top, block_reduce(total, shared, Plus{})};
}

// y = softmax of a row x of n elements. `shared` has one double per thread. A NaN in x makes all of
// y NaN.
__device__ inline RowSum softmax_row(const float* x, float* y, int64_t n, double* shared) {
  const float top = row_top(x, n, shared);
  double total = 0;
  for (int64_t c = threadIdx.x; c < n; c += blockDim.x) {
    y[c] = exponential(x[c] - top);
    total += static_cast<double>(y[c]);
  }
  total = block_reduce(total, shared, Plus{});
  const auto factor = static_cast<float>(1 / total);
  for (int64_t c = threadIdx.x; c < n; c += blockDim.x) y[c] *= factor;
  return {top, total};
}

}  // namespace lockstep::kernels::cuda
