// The axes of products of matrices, the same for all kernels.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/engine/kernels/matrices/matrix_product.h"

namespace lockstep::kernels {

// An axis that counts products, with the matrices of each factor from one index to the next; 0 if
// the factor is broadcast along it.
struct ProductAxis {
  int64_t size = 1, a = 0, b = 0;
};

struct ProductAxes {
  int64_t rows = 0, terms = 0, columns = 0;  // of each product
  // Axes of one index are left out, and neighbors are joined where that is possible.
  std::vector<ProductAxis> axes = {};
  Shape dst = {};

  int64_t products() const {
    int64_t count = 1;
    for (const ProductAxis& axis : axes) count *= axis.size;
    return count;
  }
};

// Calls body(matrix of a, matrix of b, index) for the first `count` axes in row-major order.
template <class Body>
void for_each_product(const ProductAxes& p, size_t count, const Body& body) {
  std::vector<int64_t> index(count);
  int64_t products = 1, a = 0, b = 0;
  for (size_t i = 0; i < count; ++i) products *= p.axes[i].size;
  for (int64_t n = 0; n < products; ++n) {
    body(a, b, n);
    for (size_t i = count; i-- > 0;) {
      const ProductAxis& axis = p.axes[i];
      a += axis.a;
      b += axis.b;
      if (++index[i] < axis.size) break;
      a -= axis.size * axis.a;
      b -= axis.size * axis.b;
      index[i] = 0;
    }
  }
}

// Throws InvalidArgument, naming the op matmul, if the factors do not fit.
inline ProductAxes product_axes(const MatrixProductProblem& p) {
  const Shape &a = p.a.shape, &b = p.b.shape;
  const std::string received = ", received " + p.a.to_string() + " and " + p.b.to_string();
  if (p.a.dtype != DType::f32 || p.b.dtype != DType::f32) {
    throw InvalidArgument("[matmul] expected elements of f32" + received);
  }
  if (a.rank() < 2 || b.rank() < 2) {
    throw InvalidArgument("[matmul] expected matrices of ... x m x k and ... x k x n" + received);
  }
  ProductAxes result{.rows = a[p.transpose_a ? -1 : -2],
                     .terms = a[p.transpose_a ? -2 : -1],
                     .columns = b[p.transpose_b ? -2 : -1]};
  const int64_t terms = b[p.transpose_b ? -1 : -2];
  if (result.terms != terms) {
    throw InvalidArgument("[matmul] the columns of a (" + std::to_string(result.terms) +
                          ") must be as many as the rows of b (" + std::to_string(terms) + ")" +
                          received);
  }
  std::vector<int64_t> dims;
  int64_t matrices_of_a = 1, matrices_of_b = 1;
  for (int axis = 3; axis <= std::max(a.rank(), b.rank()); ++axis) {
    const int64_t of_a = axis <= a.rank() ? a[-axis] : 1, of_b = axis <= b.rank() ? b[-axis] : 1;
    if (of_a != of_b && of_a != 1 && of_b != 1) {
      throw InvalidArgument(
          "[matmul] the axes before those of the matrices cannot be broadcast" + received,
          "aligned at the third-last axis, they must be equal or 1");
    }
    const ProductAxis found{.size = of_a == 1 ? of_b : of_a,
                            .a = of_a == 1 ? 0 : matrices_of_a,
                            .b = of_b == 1 ? 0 : matrices_of_b};
    matrices_of_a *= of_a;
    matrices_of_b *= of_b;
    dims.insert(dims.begin(), found.size);
    if (found.size == 1) continue;
    ProductAxis* const inner = result.axes.empty() ? nullptr : &result.axes.front();
    if (inner && found.a == inner->size * inner->a && found.b == inner->size * inner->b) {
      inner->size *= found.size;
    } else {
      result.axes.insert(result.axes.begin(), found);
    }
  }
  dims.push_back(result.rows);
  dims.push_back(result.columns);
  result.dst = Shape(dims);
  return result;
}

}  // namespace lockstep::kernels
