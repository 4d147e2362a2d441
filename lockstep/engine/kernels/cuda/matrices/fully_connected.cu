#include <algorithm>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/engine/device/device_log.h"
#include "lockstep/engine/kernels/cuda/cuda.h"
#include "lockstep/engine/kernels/cuda/elements.h"
#include "lockstep/engine/kernels/cuda/elementwise/bias.h"
#include "lockstep/engine/kernels/cuda/libraries.h"
#include "lockstep/engine/kernels/cuda/passes.h"
#include "lockstep/engine/kernels/matrices/fully_connected.h"

namespace lockstep::kernels::cuda {
namespace {

// A row-major matrix. cuBLASLt uses column-major order and sees its transpose.
struct Matrix {
  int64_t rows, columns;
};

// D = A B for row-major matrices, where A and B may be transposed first. Computed in column-major
// order as D' = B' A'. Sums are f32 for all types. The constructor chooses the algorithm by
// cuBLASLt's heuristics. With deterministic algorithms it skips those that split the sum over the
// inner dimension, because their order could vary. Immutable.
class Product {
 public:
  struct Problem {
    Matrix a, b;  // in memory
    bool a_transposed = false, b_transposed = false;
    bool bias = false;  // adds one number to each column of D, which must be f32
    DType factors = DType::f32, result = DType::f32;
  };

  explicit Product(const Problem& p) : problem_(p) {
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
      prefer(name, uint32_t{kAlignment});
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

  size_t scratch_bytes() const { return aligned_scratch(workspace_); }

  void run(const void* a, const void* b, const float* bias, void* d, void* scratch,
           void* stream) const {
    constexpr float one = 1, zero = 0;
    Layouts l = layouts();
    cublasLtMatmulDescOpaque_t operation = describe(bias);
    check(cublasLtMatmul(cublas_handle(), &operation, &one, b, &l.left, a, &l.right, &zero, d,
                         &l.result, d, &l.result, &algorithm_, scratch, workspace_,
                         static_cast<cudaStream_t>(stream)),
          "product of matrices");
  }

 private:
  // Alignment of the operands' addresses in bytes.
  static constexpr uint32_t kAlignment = 16;

  struct Layouts {
    cublasLtMatrixLayoutOpaque_t left, right, result;
  };

  static std::string text(const Matrix& m) {
    return std::to_string(m.rows) + "x" + std::to_string(m.columns);
  }

  void log_choice() const {
    int32_t number = -1;
    size_t written = 0;
    check(cublasLtMatmulAlgoConfigGetAttribute(&algorithm_, CUBLASLT_ALGO_CONFIG_ID, &number,
                                               sizeof number, &written),
          "asking for an algorithm's number");
    const Problem& p = problem_;
    add_to_device_log(R"({"product":{"a":")" + text(p.a) + (p.a_transposed ? " transposed" : "") +
                      R"(","b":")" + text(p.b) + (p.b_transposed ? " transposed" : "") +
                      R"(","type":")" + std::string(name_of(p.factors)) + R"(","result":")" +
                      std::string(name_of(p.result)) + R"("},"algorithm":)" +
                      std::to_string(number) + R"(,"workspace":)" + std::to_string(workspace_) +
                      "}");
  }

  static bool splits(const cublasLtMatmulAlgo_t& algorithm) {
    int32_t parts = 1;
    size_t written = 0;
    check(cublasLtMatmulAlgoConfigGetAttribute(&algorithm, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &parts,
                                               sizeof parts, &written),
          "asking how an algorithm sums");
    return parts > 1 || parts < 0;
  }

  Layouts layouts() const {
    const auto layout = [](const Matrix& m, DType dtype) {
      cublasLtMatrixLayoutOpaque_t result;
      const auto type = dtype == DType::bf16  ? CUDA_R_16BF
                        : dtype == DType::f16 ? CUDA_R_16F
                                              : CUDA_R_32F;
      check(cublasLtMatrixLayoutInit(&result, type, static_cast<uint64_t>(m.columns),
                                     static_cast<uint64_t>(m.rows), m.columns),
            "describing a matrix");
      return result;
    };
    const Problem& p = problem_;
    const int64_t rows = p.a_transposed ? p.a.columns : p.a.rows;
    const int64_t columns = p.b_transposed ? p.b.rows : p.b.columns;
    return {layout(p.b, p.factors), layout(p.a, p.factors), layout({rows, columns}, p.result)};
  }

  cublasLtMatmulDescOpaque_t describe(const void* bias) const {
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

  Problem problem_;
  bool tf32_ = choice().tf32;
  cublasLtMatmulAlgo_t algorithm_{};
  size_t workspace_ = 0;
};

// Weights have the source's layout, so that channels last needs no conversion. Results and
// gradients of weights are f32 for all types, because both are long sums.
Kernel connected(const FullyConnectedProblem& p) {
  const int64_t n = p.src.shape[0], units = p.units, columns = p.src.shape.elements() / n;
  const DType type = p.src.dtype;
  const TensorSpec src = p.src, dst = plain_spec(Shape{n, units}), bias = plain_spec(Shape{units}),
                   diff_dst = plain_spec(dst.shape, type);
  const auto weights = [&](DType dtype) {
    return src.row_major() ? plain_spec(Shape{units, columns}, dtype)
                           : channels_last(src.shape.with_batch(units), dtype);
  };
  const bool biased = p.bias;
  const Product forward({.a = {n, columns},
                         .b = {units, columns},
                         .b_transposed = true,
                         .bias = biased,
                         .factors = type});
  const Product data({.a = {n, units}, .b = {units, columns}, .factors = type, .result = type});
  const Product filters(
      {.a = {n, units}, .b = {n, columns}, .a_transposed = true, .factors = type});
  const ChannelPlaces places{n, units, 1};
  Kernel kernel;
  std::vector<Operand> reads{input(0, src), input(1, weights(type))};
  std::vector<Operand> gradients{diff_input(1, weights(DType::f32))};
  if (biased) {
    reads.push_back(input(2, bias));
    gradients.push_back(diff_input(2, bias));
  }
  kernel.forward = own_pass(
      reads, {output(0, dst)},
      [=](const Bound& b) {
        forward.run(b.in(0), b.in(1), biased ? b.in(2) : nullptr, b.out(0), b.scratch, b.stream);
      },
      forward.scratch_bytes());
  kernel.backward.push_back(own_pass(
      {diff_output(0, diff_dst), input(1, weights(type))}, {diff_input(0, src)},
      [=](const Bound& b) { data.run(b.in(0), b.in(1), nullptr, b.out(0), b.scratch, b.stream); },
      data.scratch_bytes()));
  kernel.backward.push_back(own_pass(
      {input(0, src), diff_output(0, diff_dst)}, gradients,
      [=](const Bound& b) {
        filters.run(b.in(1), b.in(0), nullptr, b.out(0), b.scratch, b.stream);
        if (!biased) return;
        for_elements(type, [&]<class T>(T) {
          launch_bias_gradient(places, b.in<T>(1), b.out(1), b.scratch, b.stream);
        });
      },
      std::max(filters.scratch_bytes(), biased ? bias_gradient_scratch(places, type) : 0)));
  return kernel;
}

}  // namespace

Kernel fully_connected(const FullyConnectedProblem& p) {
  try {
    return connected(p);
  } catch (const Unsupported&) {
    if (p.src.dtype == DType::f32) throw;
  }
  FullyConnectedProblem wide = p;
  wide.src = p.src.row_major() ? plain_spec(p.src.shape) : channels_last(p.src.shape);
  return connected(wide);
}

}  // namespace lockstep::kernels::cuda
