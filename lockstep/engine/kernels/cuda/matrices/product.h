// Products of matrices by cuBLASLt.
#pragma once

#include <cstdint>

#include "lockstep/engine/kernels/cuda/libraries.h"

namespace lockstep::kernels::cuda {

// A row-major matrix. cuBLASLt uses column-major order and sees its transpose.
struct Matrix {
  int64_t rows, columns;
};

// D = A B for row-major matrices, where A and B may be transposed first. Computed in column-major
// order as D' = B' A'. Sums are f32 for all types. The constructor chooses the algorithm by
// cuBLASLt's heuristics. With deterministic algorithms it skips those that split the sum over the
// inner dimension, because their order could vary. Immutable, thread-safe.
class Product {
 public:
  struct Problem {
    Matrix a, b;  // in memory; no size is 0
    bool a_transposed = false, b_transposed = false;
    bool bias = false;  // adds one number to each column of D, which must be f32
    DType factors = DType::f32, result = DType::f32;
    // As many products. From one to the next, factors advance by whole matrices; 0: all have the
    // same one.
    int64_t count = 1, a_step = 0, b_step = 0;
    uint32_t alignment = kAlignment;  // of the operands' addresses in bytes
  };
  static constexpr uint32_t kAlignment = 16;  // of whole tensors

  // Throws Unsupported if cuBLASLt has no algorithm.
  explicit Product(const Problem& p);

  size_t scratch_bytes() const { return aligned_scratch(workspace_); }

  // Adds the products to the stream. `bias`: null if the problem has none.
  void run(const void* a, const void* b, const float* bias, void* d, void* scratch,
           void* stream) const;

 private:
  struct Layouts {
    cublasLtMatrixLayoutOpaque_t left, right, result;
  };
  Layouts layouts() const;
  cublasLtMatmulDescOpaque_t describe(const void* bias) const;
  void log_choice() const;

  Problem problem_;
  bool tf32_;
  cublasLtMatmulAlgo_t algorithm_{};
  size_t workspace_ = 0;
};

}  // namespace lockstep::kernels::cuda
