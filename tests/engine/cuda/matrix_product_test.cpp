// Products of matrices by the CUDA back end, with cuBLASLt's stand-in, beside the CPU's.
#include "lockstep/engine/kernels/matrices/matrix_product.h"

#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/engine/kernels/cuda/cuda.h"
#include "tests/engine/cuda/harness.h"

namespace lockstep::kernels::cudatest {
namespace {

TEST(CudaMatrixProduct, OneAndMany) {
  struct Row {
    Shape a, b;
    bool transpose_a = false, transpose_b = false;
  };
  const Row rows[] = {{{1, 1}, {1, 1}},
                      {{5, 7}, {7, 3}},
                      {{7, 5}, {7, 3}, true},
                      {{5, 7}, {3, 7}, false, true},
                      {{7, 5}, {3, 7}, true, true},
                      {{33, 100}, {100, 1}},
                      {{1, 100}, {100, 33}},
                      // Many, broadcast along some axes; aligned and not.
                      {{4, 8, 12}, {4, 12, 16}},
                      {{3, 5, 7}, {3, 7, 3}},
                      {{3, 5, 7}, {7, 3}},
                      {{5, 7}, {3, 7, 3}},
                      {{2, 1, 3, 5}, {4, 5, 3}},
                      {{2, 1, 4, 8}, {4, 8, 4}},
                      {{2, 3, 1, 5, 2}, {2, 1, 4, 5, 3}, true},
                      // Sums of no terms, and no results.
                      {{3, 0}, {0, 4}},
                      {{2, 3, 0}, {0, 4}},
                      {{0, 3}, {3, 4}},
                      {{0, 2, 3}, {3, 4}}};
  for (const Row& row : rows) {
    SCOPED_TRACE(row.a.to_string() + " " + row.b.to_string());
    const MatrixProductProblem p{plain(row.a), plain(row.b), row.transpose_a, row.transpose_b};
    compare(cpu_table().matrix_product(p), cuda::matrix_product(p), kClose);
  }
}

TEST(CudaMatrixProduct, RefusesWhatDoesNotFit) {
  EXPECT_THROW(cuda::matrix_product({plain({2, 3}), plain({4, 5})}), InvalidArgument);
  EXPECT_THROW(cuda::matrix_product({plain({3}), plain({3, 5})}), InvalidArgument);
  EXPECT_THROW(cuda::matrix_product({plain({2, 3}), plain({3, 5}, DType::i32)}), InvalidArgument);
}

}  // namespace
}  // namespace lockstep::kernels::cudatest
