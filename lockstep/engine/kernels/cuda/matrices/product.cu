#include <string>

#include "lockstep/base/error.h"
#include "lockstep/engine/device/device_log.h"
#include "lockstep/engine/kernels/cuda/cuda.h"
#include "lockstep/engine/kernels/cuda/launch.h"
#include "lockstep/engine/kernels/cuda/matrices/product.h"

namespace lockstep::kernels::cuda {
namespace {

std::string text(const Matrix& m) {
  return std::to_string(m.rows) + "x" + std::to_string(m.columns);
}

bool splits(const cublasLtMatmulAlgo_t& algorithm) {
  int32_t parts = 1;
  size_t written = 0;
  check(cublasLtMatmulAlgoConfigGetAttribute(&algorithm, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &parts,
                                             sizeof parts, &written),
        "asking how an algorithm sums");
  return parts > 1 || parts < 0;
}

}  // namespace

Product::Product(const Problem& p) : problem_(p), tf32_(choice().tf32) {
  Layouts l = layouts();
  // Only the alignment of this address matters.
  cublasLtMatmulDescOpaque_t operation =
      describe(reinterpret_cast<const void*>(uintptr_t{kAlignment}));
  cublasLtMatmulPreferenceOpaque_t preference;
  check(cublasLtMatmulPreferenceInit(&preference), "starting a choice");
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t name, auto value) {
    check(cublasLtMatmulPreferenceSetAttribute(&preference, name, &value, sizeof value),
          "restricting the choice");
  };
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t{kMostLibraryScratch});
  prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
         choice().deterministic ? uint32_t{CUBLASLT_REDUCTION_SCHEME_NONE}
                                : uint32_t{CUBLASLT_REDUCTION_SCHEME_MASK});
  for (const auto name :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
    prefer(name, p.alignment);
  }
  cublasLtMatmulHeuristicResult_t found[16];
  int count = 0;
  check(cublasLtMatmulAlgoGetHeuristic(cublas_handle(), &operation, &l.left, &l.right, &l.result,
                                       &l.result, &preference, 16, found, &count),
        "choosing an algorithm");
  for (int i = 0; i < count; ++i) {
    if (found[i].state != CUBLAS_STATUS_SUCCESS) continue;
    if (choice().deterministic && splits(found[i].algo)) continue;
    algorithm_ = found[i].algo;
    workspace_ = found[i].workspaceSize;
    if (has_device_log()) log_choice();
    return;
  }
  throw Unsupported("[cuda] cuBLASLt has no algorithm for a product of " + text(p.a) + " and " +
                    text(p.b));
}

void Product::run(const void* a, const void* b, const float* bias, void* d, void* scratch,
                  void* stream) const {
  constexpr float one = 1, zero = 0;
  Layouts l = layouts();
  cublasLtMatmulDescOpaque_t operation = describe(bias);
  check(cublasLtMatmul(cublas_handle(), &operation, &one, b, &l.left, a, &l.right, &zero, d,
                       &l.result, d, &l.result, &algorithm_, scratch, workspace_,
                       static_cast<cudaStream_t>(stream)),
        "product of matrices");
}

void Product::log_choice() const {
  int32_t number = -1;
  size_t written = 0;
  check(cublasLtMatmulAlgoConfigGetAttribute(&algorithm_, CUBLASLT_ALGO_CONFIG_ID, &number,
                                             sizeof number, &written),
        "asking for an algorithm's number");
  const Problem& p = problem_;
  add_to_device_log(R"({"product":{"a":")" + text(p.a) + (p.a_transposed ? " transposed" : "") +
                    R"(","b":")" + text(p.b) + (p.b_transposed ? " transposed" : "") +
                    R"(","count":)" + std::to_string(p.count) + R"(,"type":")" +
                    std::string(name_of(p.factors)) + R"(","result":")" +
                    std::string(name_of(p.result)) + R"("},"algorithm":)" + std::to_string(number) +
                    R"(,"workspace":)" + std::to_string(workspace_) + "}");
}

Product::Layouts Product::layouts() const {
  const Problem& p = problem_;
  const auto layout = [&](const Matrix& m, DType dtype, int64_t step) {
    cublasLtMatrixLayoutOpaque_t result;
    const auto type = dtype == DType::bf16  ? CUDA_R_16BF
                      : dtype == DType::f16 ? CUDA_R_16F
                                            : CUDA_R_32F;
    check(cublasLtMatrixLayoutInit(&result, type, static_cast<uint64_t>(m.columns),
                                   static_cast<uint64_t>(m.rows), m.columns),
          "describing a matrix");
    const auto set = [&](cublasLtMatrixLayoutAttribute_t name, auto value) {
      check(cublasLtMatrixLayoutSetAttribute(&result, name, &value, sizeof value),
            "describing matrices");
    };
    if (p.count > 1) {
      set(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, static_cast<int32_t>(p.count));
      set(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, step * m.rows * m.columns);
    }
    return result;
  };
  const int64_t rows = p.a_transposed ? p.a.columns : p.a.rows;
  const int64_t columns = p.b_transposed ? p.b.rows : p.b.columns;
  return {layout(p.b, p.factors, p.b_step), layout(p.a, p.factors, p.a_step),
          layout({rows, columns}, p.result, 1)};
}

cublasLtMatmulDescOpaque_t Product::describe(const void* bias) const {
  cublasLtMatmulDescOpaque_t operation;
  const bool tf32 = tf32_ && problem_.factors == DType::f32;
  const auto compute = tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
  check(cublasLtMatmulDescInit(&operation, compute, CUDA_R_32F), "describing a product");
  const auto set = [&](cublasLtMatmulDescAttributes_t name, auto value) {
    check(cublasLtMatmulDescSetAttribute(&operation, name, &value, sizeof value),
          "describing a product");
  };
  set(CUBLASLT_MATMUL_DESC_TRANSA, problem_.b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(CUBLASLT_MATMUL_DESC_TRANSB, problem_.a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
  if (problem_.bias) {
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
  }
  return operation;
}

}  // namespace lockstep::kernels::cuda
