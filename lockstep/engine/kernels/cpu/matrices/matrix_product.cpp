#include "lockstep/engine/kernels/matrices/matrix_product.h"

#include <memory>
#include <utility>

#include "lockstep/engine/kernels/cpu/matrices/blocked_products.h"
#include "lockstep/engine/kernels/cpu/rows.h"
#include "lockstep/engine/kernels/matrices/product_axes.h"

namespace lockstep::kernels::cpu {
namespace {

// How products are computed. Every element is the same sum (products.h), however factors lie, so
// none of these choices changes a bit.
struct Way {
  ProductAxes axes;
  BlockedProduct product;
  bool swapped = false;  // computes the transpose, b^T a^T
};

Way way_of(const MatrixProductProblem& p) {
  Way way{.axes = product_axes(p), .product = {}};
  ProductAxes& axes = way.axes;
  // Products that share b are one product of all their rows.
  if (!p.transpose_a && axes.axes.size() == 1 && axes.axes[0].a == 1 && axes.axes[0].b == 0) {
    axes.rows *= axes.axes[0].size;
    axes.axes.clear();
  }
  // A single column is computed as a single row, whose elements lie in lanes. A row and a column
  // are the same in memory, transposed or not.
  way.swapped = axes.columns == 1 && axes.rows > 1;
  way.product = way.swapped ? BlockedProduct{1, axes.terms, axes.rows, false, !p.transpose_a}
                            : BlockedProduct{axes.rows, axes.terms, axes.columns,
                                             p.transpose_a && axes.rows > 1, p.transpose_b};
  return way;
}

void multiply_all(const Way& way, const float* a, const float* b, float* dst, void* scratch) {
  const ProductAxes& axes = way.axes;
  const int64_t size_of_a = axes.rows * axes.terms, size_of_b = axes.terms * axes.columns,
                size = axes.rows * axes.columns;
  if (size == 0) return;
  // Each product is computed when the next one is known.
  const float *left = nullptr, *right = nullptr;
  int64_t computed = 0;
  const auto compute = [&](const NextFactors& next) {
    multiply(way.product, left, right, nullptr, dst + computed++ * size, scratch, next);
  };
  for_each_product(axes, axes.axes.size(), [&](int64_t of_a, int64_t of_b, int64_t n) {
    NextFactors next{a + of_a * size_of_a, b + of_b * size_of_b};
    if (way.swapped) std::swap(next.a, next.b);
    if (n > 0) compute(next);
    left = next.a;
    right = next.b;
  });
  if (axes.products() > 0) compute({});
}

}  // namespace

Kernel matrix_product(const MatrixProductProblem& p) {
  const auto way = std::make_shared<const Way>(way_of(p));
  Kernel kernel;
  kernel.forward = own_pass_with_scratch(
      {input(0, p.a.plain()), input(1, p.b.plain())}, {output(0, plain_spec(way->axes.dst))},
      blocked_product_scratch(), [way](void* const* r, void* const* w, void* scratch) {
        multiply_all(*way, in(r, 0), in(r, 1), out(w, 0), scratch);
      });
  // A factor that is broadcast along axis 0 may hold rows along another axis.
  const Shape &a = p.a.shape, &b = p.b.shape;
  kernel.rows_apart = a.rank() > 2 && a.rank() == b.rank() && a[0] == b[0];
  return kernel;
}

}  // namespace lockstep::kernels::cpu
