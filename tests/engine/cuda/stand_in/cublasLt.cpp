#include "tests/engine/cuda/stand_in/cublasLt.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "lockstep/base/numeric/bfloat16.h"
#include "lockstep/base/numeric/float16.h"

namespace {

constexpr size_t kWorkspace = 200;

template <class T>
void take(T& to, const void* value, size_t bytes) {
  if (bytes == sizeof(T)) std::memcpy(&to, value, bytes);
}

}  // namespace

size_t cublasLtGetVersion() { return 130100; }
const char* cublasLtGetStatusString(cublasStatus_t) { return "refused by the stand-in"; }
cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  static int instance;
  *handle = &instance;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutInit(cublasLtMatrixLayoutOpaque_t* m, cudaDataType type,
                                        uint64_t rows, uint64_t columns, int64_t step) {
  *m = {rows, columns, step, type, 1, 0};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayoutOpaque_t* m,
                                                cublasLtMatrixLayoutAttribute_t name,
                                                const void* value, size_t bytes) {
  switch (name) {
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
      take(m->count, value, bytes);
      break;
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
      take(m->offset, value, bytes);
      break;
  }
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescInit(cublasLtMatmulDescOpaque_t* d, cublasComputeType_t,
                                      cudaDataType) {
  *d = {CUBLAS_OP_N, CUBLAS_OP_N, CUBLASLT_EPILOGUE_DEFAULT, nullptr};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDescOpaque_t* d,
                                              cublasLtMatmulDescAttributes_t name,
                                              const void* value, size_t bytes) {
  switch (name) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      take(d->a, value, bytes);
      break;
    case CUBLASLT_MATMUL_DESC_TRANSB:
      take(d->b, value, bytes);
      break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      take(d->epilogue, value, bytes);
      break;
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      take(d->bias, value, bytes);
      break;
  }
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceInit(cublasLtMatmulPreferenceOpaque_t* p) {
  *p = {CUBLASLT_REDUCTION_SCHEME_MASK, 256};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreferenceOpaque_t* p,
                                                    cublasLtMatmulPreferenceAttributes_t name,
                                                    const void* value, size_t bytes) {
  if (name == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK) take(p->reduction_schemes, value, bytes);
  if (name >= CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES) {
    uint32_t alignment = 0;
    take(alignment, value, bytes);
    p->alignment = std::min(p->alignment, alignment);
  }
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t* algo,
                                                    cublasLtMatmulAlgoConfigAttributes_t,
                                                    void* value, size_t bytes, size_t* written) {
  std::memcpy(value, &algo->parts, bytes);
  *written = bytes;
  return CUBLAS_STATUS_SUCCESS;
}
// First proposes an algorithm that splits the inner dimension, then one that does not.
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t, cublasLtMatmulDescOpaque_t* d, cublasLtMatrixLayoutOpaque_t* a,
    cublasLtMatrixLayoutOpaque_t* b, cublasLtMatrixLayoutOpaque_t*,
    cublasLtMatrixLayoutOpaque_t* result, cublasLtMatmulPreferenceOpaque_t* preference, int most,
    cublasLtMatmulHeuristicResult_t* found, int* count) {
  const uint64_t rows = d->a == CUBLAS_OP_N ? a->rows : a->columns;
  const uint64_t inner = d->a == CUBLAS_OP_N ? a->columns : a->rows;
  const uint64_t columns = d->b == CUBLAS_OP_N ? b->columns : b->rows;
  const uint64_t other = d->b == CUBLAS_OP_N ? b->rows : b->columns;
  *count = 0;
  const bool fits = inner == other && result->rows == rows && result->columns == columns &&
                    a->type == b->type && a->count == b->count && a->count == result->count &&
                    (d->epilogue == CUBLASLT_EPILOGUE_DEFAULT || result->type == CUDA_R_32F);
  // Tests the alternative for cases that cuBLASLt does not support.
  if (a->type != CUDA_R_32F && inner == 1) return CUBLAS_STATUS_SUCCESS;
  if (!fits || most < 2 || preference->reduction_schemes != CUBLASLT_REDUCTION_SCHEME_NONE) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  found[0] = {{4, preference->alignment}, 0, CUBLAS_STATUS_SUCCESS};
  found[1] = {{1, preference->alignment}, kWorkspace, CUBLAS_STATUS_SUCCESS};
  *count = 2;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDescOpaque_t* d, const void*,
                              const void* a_data, cublasLtMatrixLayoutOpaque_t* a,
                              const void* b_data, cublasLtMatrixLayoutOpaque_t* b, const void*,
                              const void*, cublasLtMatrixLayoutOpaque_t*, void* d_data,
                              cublasLtMatrixLayoutOpaque_t* result,
                              const cublasLtMatmulAlgo_t* algo, void* workspace,
                              size_t workspace_bytes, void*) {
  if (algo->parts != 1 || workspace_bytes != kWorkspace) return CUBLAS_STATUS_NOT_SUPPORTED;
  // The addresses of all matrices.
  const auto aligned = [&](const void* data, const cublasLtMatrixLayoutOpaque_t& m) {
    const auto size = m.type == CUDA_R_32F ? 4 : 2;
    return (reinterpret_cast<uintptr_t>(data) | static_cast<uintptr_t>(m.offset * size)) %
               algo->alignment ==
           0;
  };
  if (!aligned(a_data, *a) || !aligned(b_data, *b) || !aligned(d_data, *result)) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  std::memset(workspace, 0xFF, workspace_bytes);
  const auto at = [](const void* data, const cublasLtMatrixLayoutOpaque_t& m, cublasOperation_t op,
                     uint64_t row, uint64_t column, int64_t matrix) {
    if (op == CUBLAS_OP_T) std::swap(row, column);
    const uint64_t i =
        static_cast<uint64_t>(matrix * m.offset) + column * static_cast<uint64_t>(m.step) + row;
    const float value =
        m.type == CUDA_R_16BF  ? lockstep::to_float(static_cast<const lockstep::BFloat16*>(data)[i])
        : m.type == CUDA_R_16F ? lockstep::to_float(static_cast<const lockstep::Float16*>(data)[i])
                               : static_cast<const float*>(data)[i];
    return static_cast<double>(value);
  };
  const uint64_t inner = d->a == CUBLAS_OP_N ? a->columns : a->rows;
  for (int64_t n = 0; n < result->count; ++n) {
    for (uint64_t r = 0; r < result->rows; ++r) {
      for (uint64_t c = 0; c < result->columns; ++c) {
        double sum = d->epilogue == CUBLASLT_EPILOGUE_BIAS ? static_cast<double>(d->bias[r]) : 0;
        for (uint64_t k = 0; k < inner; ++k) {
          sum += at(a_data, *a, d->a, r, k, n) * at(b_data, *b, d->b, k, c, n);
        }
        const uint64_t i =
            static_cast<uint64_t>(n * result->offset) + c * static_cast<uint64_t>(result->step) + r;
        if (result->type == CUDA_R_16BF) {
          static_cast<lockstep::BFloat16*>(d_data)[i] =
              lockstep::to_bfloat16(static_cast<float>(sum));
        } else if (result->type == CUDA_R_16F) {
          static_cast<lockstep::Float16*>(d_data)[i] =
              lockstep::to_float16(static_cast<float>(sum));
        } else {
          static_cast<float*>(d_data)[i] = static_cast<float>(sum);
        }
      }
    }
  }
  return CUBLAS_STATUS_SUCCESS;
}
