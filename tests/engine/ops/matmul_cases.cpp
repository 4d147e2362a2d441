// Products of matrices: one and many, transposed, broadcast, odd sizes.
#include "lockstep/engine/ops/op_makers.h"
#include "tests/engine/ops/cases.h"

namespace lockstep::optest {
namespace {

using Dims = std::vector<int64_t>;

// Calls visit(element of a, of b, of y) for each product of two elements.
template <class Visit>
void each_product(const Dims& a, const Dims& b, const Dims& y, bool transpose_a, bool transpose_b,
                  const Visit& visit) {
  const size_t rank = y.size();
  const int64_t m = y[rank - 2], n = y[rank - 1];
  const int64_t terms = transpose_a ? a[a.size() - 2] : a.back();
  // The matrix of a factor for product `p`.
  const auto matrix = [&](const Dims& of, int64_t p) {
    int64_t place = 0, step = 1;
    for (size_t i = rank - 2; i-- > 0; p /= y[i]) {
      const size_t missing = rank - of.size();
      if (i < missing) continue;
      const int64_t size = of[i - missing];
      if (size > 1) place += p % y[i] * step;
      step *= size;
    }
    return place;
  };
  int64_t products = 1;
  for (size_t i = 0; i + 2 < rank; ++i) products *= y[i];
  for (int64_t p = 0; p < products; ++p) {
    const int64_t from_a = matrix(a, p) * m * terms, from_b = matrix(b, p) * terms * n;
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        for (int64_t k = 0; k < terms; ++k) {
          visit(from_a + (transpose_a ? k * m + i : i * terms + k),
                from_b + (transpose_b ? j * terms + k : k * n + j), (p * m + i) * n + j);
        }
      }
    }
  }
}

}  // namespace

Case matmul(const Dims& a, const Dims& b, const Dims& y, bool transpose_a, bool transpose_b) {
  Case c;
  c.name = shape_of(Array(a)).to_string() + (transpose_a ? "_transposed" : "") + "_by_" +
           shape_of(Array(b)).to_string() + (transpose_b ? "_transposed" : "");
  c.op = ops::make_matmul(transpose_a, transpose_b);
  c.inputs = {{random_array(a, 61)}, {random_array(b, 62)}};
  c.forward = [=](const std::vector<Array>& in) {
    Array result(y);
    each_product(a, b, y, transpose_a, transpose_b,
                 [&](int64_t i, int64_t j, int64_t k) { result[k] += in[0][i] * in[1][j]; });
    return std::vector<Array>{result};
  };
  c.backward = [=](const std::vector<Array>& in, const Array& dy) {
    Array da(a), db(b);
    each_product(a, b, y, transpose_a, transpose_b, [&](int64_t i, int64_t j, int64_t k) {
      da[i] += dy[k] * in[1][j];
      db[j] += dy[k] * in[0][i];
    });
    return std::vector<Array>{da, db};
  };
  return c;
}

std::vector<Case> matmul_cases() {
  std::vector<Case> cases{matmul({1, 1}, {1, 1}, {1, 1}, false, false),
                          matmul({3, 1}, {1, 5}, {3, 5}, false, false),
                          matmul({1, 7}, {7, 1}, {1, 1}, false, false),
                          matmul({1, 300}, {300, 33}, {1, 33}, false, false),
                          matmul({33, 300}, {300, 1}, {33, 1}, false, false),
                          matmul({33, 300}, {1, 300}, {33, 1}, false, true),
                          matmul({300, 33}, {300, 1}, {33, 1}, true, false)};
  for (const bool a : {false, true}) {
    for (const bool b : {false, true}) {
      const auto matrix = [](Dims dims, bool transposed) {
        if (transposed) std::swap(dims.end()[-1], dims.end()[-2]);
        return dims;
      };
      cases.push_back(matmul(matrix({5, 17}, a), matrix({17, 3}, b), {5, 3}, a, b));
      cases.push_back(matmul(matrix({3, 4, 9}, a), matrix({3, 9, 5}, b), {3, 4, 5}, a, b));
      cases.push_back(matmul(matrix({3, 4, 9}, a), matrix({9, 5}, b), {3, 4, 5}, a, b));
      cases.push_back(matmul(matrix({4, 9}, a), matrix({3, 9, 5}, b), {3, 4, 5}, a, b));
      cases.push_back(matmul(matrix({2, 1, 3, 2}, a), matrix({3, 2, 4}, b), {2, 3, 3, 4}, a, b));
      cases.push_back(
          matmul(matrix({2, 3, 1, 1, 2}, a), matrix({2, 1, 4, 2, 3}, b), {2, 3, 4, 1, 3}, a, b));
    }
  }
  return cases;
}

}  // namespace lockstep::optest
