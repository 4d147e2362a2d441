#include <memory>
#include <string>

#include "lockstep/engine/kernels/cuda/launch.h"
#include "lockstep/engine/kernels/cuda/matrices/product.h"
#include "lockstep/engine/kernels/cuda/passes.h"
#include "lockstep/engine/kernels/matrices/matrix_product.h"
#include "lockstep/engine/kernels/matrices/product_axes.h"

namespace lockstep::kernels::cuda {
namespace {

struct Zero {
  float* to;
  __device__ void operator()(int64_t i) const { to[i] = 0; }
};

// cuBLASLt counts products in 32 bits.
constexpr int64_t kMostAtOnce = int64_t{1} << 30;

// The products along the last axis are one call, those along others as many calls.
struct Calls {
  ProductAxes axes;
  ProductAxis inner;
  int64_t size_of_a, size_of_b, size;
  Product product;
};

std::shared_ptr<const Calls> calls_of(const MatrixProductProblem& p, ProductAxes axes) {
  ProductAxis inner;
  if (!axes.axes.empty()) {
    inner = axes.axes.back();
    axes.axes.pop_back();
  }
  if (inner.size > kMostAtOnce) {
    throw Unsupported("[cuda] " + std::to_string(inner.size) +
                      " products of matrices are more than cuBLASLt computes at once");
  }
  const int64_t m = axes.rows, k = axes.terms, n = axes.columns;
  // Each matrix of a call must be as aligned as the algorithm expects.
  const bool aligned = (axes.axes.empty() && inner.size == 1) ||
                       ((m * k) % 4 == 0 && (k * n) % 4 == 0 && (m * n) % 4 == 0);
  const Product product({.a = p.transpose_a ? Matrix{k, m} : Matrix{m, k},
                         .b = p.transpose_b ? Matrix{n, k} : Matrix{k, n},
                         .a_transposed = p.transpose_a,
                         .b_transposed = p.transpose_b,
                         .count = inner.size,
                         .a_step = inner.a,
                         .b_step = inner.b,
                         .alignment = aligned ? Product::kAlignment : 4});
  return std::make_shared<const Calls>(Calls{axes, inner, m * k, k * n, m * n, product});
}

}  // namespace

Kernel matrix_product(const MatrixProductProblem& p) {
  const ProductAxes axes = product_axes(p);
  const std::vector<Operand> reads{input(0, p.a.plain()), input(1, p.b.plain())};
  const std::vector<Operand> writes{output(0, plain_spec(axes.dst))};
  const int64_t elements = axes.dst.elements();
  Kernel kernel;
  if (elements == 0 || axes.terms == 0) {
    kernel.forward = own_pass(reads, writes, [elements](const Bound& b) {
      launch_each("matrix_product", elements, b.stream, Zero{b.out(0)});
    });
    return kernel;
  }
  const auto calls = calls_of(p, axes);
  kernel.forward = own_pass(
      reads, writes,
      [calls](const Bound& bound) {
        const Calls& c = *calls;
        for_each_product(c.axes, c.axes.axes.size(), [&](int64_t a, int64_t b, int64_t n) {
          c.product.run(bound.in(0) + a * c.size_of_a, bound.in(1) + b * c.size_of_b, nullptr,
                        bound.out(0) + n * c.inner.size * c.size, bound.scratch, bound.stream);
        });
      },
      calls->product.scratch_bytes());
  return kernel;
}

}  // namespace lockstep::kernels::cuda
