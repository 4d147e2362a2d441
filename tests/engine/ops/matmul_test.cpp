// Products of matrices: the bits that their header describes, sizes of 0, and the functions.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>

#include "lockstep/base/error.h"
#include "lockstep/engine/kernels/cpu/matrices/products.h"
#include "lockstep/engine/kernels/matrices/matrix_product.h"
#include "lockstep/engine/ops/ops.h"
#include "tests/engine/ops/harness.h"
#include "tests/engine/ops/only_target.h"

namespace lockstep::optest::matrix_products {
namespace {

using Dims = std::vector<int64_t>;

struct Problem {
  Dims a, b, y;
  bool transpose_a = false, transpose_b = false;
};

const std::vector<Problem>& problems() {
  static const std::vector<Problem> all{{{1, 1}, {1, 1}, {1, 1}},
                                        {{13, 5}, {5, 16}, {13, 16}},
                                        {{37, 300}, {300, 33}, {37, 33}},
                                        {{300, 37}, {300, 33}, {37, 33}, true},
                                        {{37, 300}, {33, 300}, {37, 33}, false, true},
                                        {{300, 37}, {33, 300}, {37, 33}, true, true},
                                        {{140, 513}, {513, 70}, {140, 70}},
                                        {{513, 140}, {513, 70}, {140, 70}, true},
                                        {{140, 512}, {70, 512}, {140, 70}, false, true},
                                        {{270, 300}, {300, 135}, {270, 135}},
                                        // Rows and columns.
                                        {{1, 600}, {600, 50}, {1, 50}},
                                        {{1, 600}, {50, 600}, {1, 50}, false, true},
                                        {{600, 1}, {600, 50}, {1, 50}, true},
                                        {{50, 600}, {600, 1}, {50, 1}},
                                        {{600, 50}, {600, 1}, {50, 1}, true},
                                        {{600, 50}, {1, 600}, {50, 1}, true, true},
                                        {{40, 1}, {1, 30}, {40, 30}},
                                        {{3, 600}, {600, 150}, {3, 150}},
                                        // Many.
                                        {{5, 7, 9}, {5, 9, 11}, {5, 7, 11}},
                                        {{5, 7, 9}, {9, 11}, {5, 7, 11}},
                                        {{5, 9, 7}, {9, 11}, {5, 7, 11}, true},
                                        {{7, 9}, {5, 11, 9}, {5, 7, 11}, false, true},
                                        {{2, 1, 3, 4, 5}, {6, 1, 5, 2}, {2, 6, 3, 4, 2}}};
  return all;
}

std::string text_of(const Problem& p) {
  return Shape(p.a).to_string() + (p.transpose_a ? "^T" : "") + " " + Shape(p.b).to_string() +
         (p.transpose_b ? "^T" : "");
}

// The result in memory that was filled, followed by a number that must stay.
std::vector<float> computed(const Problem& p, const Tensor& a, const Tensor& b) {
  const kernels::Kernel kernel = kernels::compile(
      kernels::table_for({}),
      kernels::MatrixProductProblem{a.spec(), b.spec(), p.transpose_a, p.transpose_b});
  EXPECT_EQ(kernel.forward.writes[0].spec.shape, Shape(p.y));
  const auto count = static_cast<size_t>(Shape(p.y).elements());
  std::vector<float> y(count + 1, 7);
  std::fill_n(y.begin(), count, NAN);
  std::vector<std::byte> scratch(kernel.forward.scratch_bytes + 64, std::byte{0xff});
  void* const reads[] = {const_cast<void*>(a.raw()), const_cast<void*>(b.raw())};
  void* const writes[] = {y.data()};
  kernel.forward.bind({reads, writes, scratch.data()})({});
  EXPECT_EQ(y.back(), 7);
  y.pop_back();
  return y;
}

// Element by element, as products.h describes.
std::vector<float> documented(const Problem& p, const Tensor& a, const Tensor& b) {
  const auto element = [](const Tensor& x, Dims at, bool transposed) {
    if (transposed) std::swap(at.end()[-1], at.end()[-2]);
    const Dims& dims = x.shape().dims();
    at.erase(at.begin(), at.end() - static_cast<int64_t>(dims.size()));
    int64_t place = 0;
    for (size_t i = 0; i < dims.size(); ++i) place = place * dims[i] + (dims[i] > 1 ? at[i] : 0);
    return x.data<float>()[place];
  };
  const int64_t terms = a.shape()[p.transpose_a ? -2 : -1];
  std::vector<float> y;
  for (int64_t n = 0; n < Shape(p.y).elements(); ++n) {
    Dims at(p.y.size());
    int64_t rest = n;
    for (size_t i = at.size(); i-- > 0; rest /= p.y[i]) at[i] = rest % p.y[i];
    float sum = 0;
    for (int64_t first = 0; first < terms; first += kernels::cpu::kSumBlock<float>) {
      float block = 0;
      for (int64_t k = first; k < std::min(terms, first + kernels::cpu::kSumBlock<float>); ++k) {
        Dims of_a = at, of_b = at;
        of_a.back() = k;
        of_b.end()[-2] = k;
        block = std::fma(element(a, of_a, p.transpose_a), element(b, of_b, p.transpose_b), block);
      }
      sum = first == 0 ? block : sum + block;
    }
    y.push_back(sum);
  }
  return y;
}

TEST(Matmul, HasTheDocumentedBitsOnEveryInstructionSet) {
  for (const Problem& p : problems()) {
    SCOPED_TRACE(text_of(p));
    const Tensor a = tensor_of(random_array(p.a, 1)), b = tensor_of(random_array(p.b, 2));
    const std::vector<float> expected = documented(p, a, b);
    for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
      const Target only(target);
      EXPECT_EQ(computed(p, a, b), expected) << hwy::TargetName(target);
    }
  }
}

TEST(Matmul, NanAndInfinityReachTheirRowsAndColumnsAlone) {
  Array a = random_array({5, 300}, 1), b = random_array({300, 7}, 2);
  a[2 * 300 + 290] = NAN;
  b[3 * 7 + 4] = INFINITY;
  const std::vector<float> y = computed({{5, 300}, {300, 7}, {5, 7}}, tensor_of(a), tensor_of(b));
  for (size_t i = 0; i < y.size(); ++i) {
    const bool row = i / 7 == 2, column = i % 7 == 4;
    EXPECT_EQ(std::isnan(y[i]), row) << i;
    EXPECT_EQ(std::isinf(y[i]), column && !row) << i;
  }
}

// Sums of no terms, also over memory that was filled, and results without elements.
TEST(Matmul, OfNothing) {
  const auto zeros = [](const Problem& p) {
    return computed(p, Tensor::zeros(Shape(p.a)), Tensor::zeros(Shape(p.b)));
  };
  for (const bool a : {false, true}) {
    for (const bool b : {false, true}) {
      const Dims left = a ? Dims{0, 3} : Dims{3, 0}, right = b ? Dims{4, 0} : Dims{0, 4};
      EXPECT_EQ(zeros({left, right, {3, 4}, a, b}), std::vector<float>(12, 0));
    }
  }
  EXPECT_EQ(zeros({{2, 1, 0}, {0, 1}, {2, 1, 1}}), std::vector<float>(2, 0));
  EXPECT_TRUE(zeros({{0, 3}, {3, 4}, {0, 4}}).empty());
  EXPECT_TRUE(zeros({{2, 3}, {3, 0}, {2, 0}}).empty());
  EXPECT_TRUE(zeros({{0, 2, 3}, {3, 4}, {0, 2, 4}}).empty());
  EXPECT_TRUE(zeros({{0, 2, 3}, {1, 3, 4}, {0, 2, 4}}).empty());
}

// Shards of any size give the bits of all products together.
TEST(Matmul, DoesNotDependOnHowManyProductsThereAre) {
  const Tensor a = tensor_of(random_array({6, 9, 70}, 1)),
               b = tensor_of(random_array({6, 70, 33}, 2));
  const std::vector<float> whole = ops::matmul(a, b).to_vector();
  for (const int64_t step : {1, 2, 4}) {
    std::vector<float> parts;
    for (int64_t first = 0; first < 6; first += step) {
      const ops::SliceRange some{first, first + step};
      const auto part = ops::matmul(ops::slice(a, {some}), ops::slice(b, {some})).to_vector();
      parts.insert(parts.end(), part.begin(), part.end());
    }
    EXPECT_EQ(parts, whole) << step;
  }
}

TEST(Matmul, TakesVectorsAsNumPyDoes) {
  const Tensor vector = Tensor::from(std::vector<float>{1, 2, 3}, {3});
  const Tensor matrix = Tensor::from(std::vector<float>{1, 2, 3, 4, 5, 6}, {2, 3});
  const Tensor two = Tensor::from(std::vector<float>{10, 1}, {2});
  const auto expect = [](const Tensor& y, const Shape& shape, const std::vector<float>& values) {
    EXPECT_EQ(y.shape(), shape);
    EXPECT_EQ(y.to_vector(), values);
  };
  expect(ops::matmul(matrix, vector), {2}, {14, 32});
  expect(ops::matmul(two, matrix), {3}, {14, 25, 36});
  expect(ops::matmul(vector, vector), {}, {14});
  expect(ops::dot(vector, vector), {}, {14});
  expect(ops::outer(two, vector), {2, 3}, {10, 20, 30, 1, 2, 3});
  expect(ops::matrix_transpose(matrix), {3, 2}, {1, 4, 2, 5, 3, 6});
  const Tensor both = ops::broadcast_to(matrix, {4, 2, 3});
  EXPECT_EQ(ops::matmul(both, vector).shape(), (Shape{4, 2}));
  EXPECT_EQ(ops::matmul(two, both).shape(), (Shape{4, 3}));
  EXPECT_EQ(ops::matrix_transpose(both).shape(), (Shape{4, 3, 2}));
  const Tensor none = Tensor::zeros({0});
  expect(ops::dot(none, none), {}, {0});
}

// d/dx of x^T A x is (A + A^T) x, and its derivative along v is (A + A^T) v.
TEST(Matmul, DifferentiatesAQuadraticFormTwice) {
  const Tensor a = tensor_of(random_array({5, 5}, 1)), x = tensor_of(random_array({5}, 2)),
               v = tensor_of(random_array({5}, 3));
  Tape tape;
  tape.watch(x);
  const Tensor form = ops::dot(x, ops::matmul(a, x));
  const Tensor dx = tape.gradient(form, {x}, {.create_graph = true})[0];
  const Tensor along = tape.gradient(ops::dot(dx, v), {x})[0];
  const auto expected = [&](const Tensor& of) {
    Array y({5});
    for (int64_t i = 0; i < 25; ++i) {
      const double both = static_cast<double>(a.data<float>()[i]) +
                          static_cast<double>(a.data<float>()[i % 5 * 5 + i / 5]);
      y[i / 5] += both * static_cast<double>(of.data<float>()[i % 5]);
    }
    return y;
  };
  EXPECT_LE(relative_error(array_of(dx), expected(x)), 1e-6);
  EXPECT_LE(relative_error(array_of(along), expected(v)), 1e-6);
}

TEST(Matmul, WhatDoesNotFitIsNamed) {
  const auto of = [](const Shape& shape, DType type = DType::f32) {
    return Tensor::zeros(shape, type);
  };
  expect_refusal(
      [&] {
        ops::matmul(of({2, 3}), of({4, 5}));
      },
      {"[matmul]", "(3)", "(4)", "2x3", "4x5"});
  expect_refusal([&] { ops::matmul(of({2, 3}), of({4})); }, {"[matmul]", "(3)", "(4)"});
  expect_refusal([&] { ops::matmul(of({}), of({4})); }, {"[matmul]", "scalar", "4"});
  expect_refusal(
      [&] {
        ops::matmul(of({2, 5, 3}), of({3, 3, 4}));
      },
      {"[matmul]", "broadcast", "2x5x3"});
  expect_refusal(
      [&] {
        ops::matmul(of({2, 3}, DType::i32), of({3, 2}));
      },
      {"[matmul]", "f32", "i32"});
  expect_refusal([&] { ops::dot(of({3}), of({4})); }, {"[dot]", "one length", "3", "4"});
  expect_refusal([&] { ops::dot(of({3, 1}), of({3})); }, {"[dot]", "vectors", "3x1"});
  expect_refusal([&] { ops::outer(of({3, 1}), of({3})); }, {"[outer]", "vectors", "3x1"});
  expect_refusal([&] { ops::matrix_transpose(of({3})); }, {"[matrix_transpose]", "received 3"});
}

}  // namespace
}  // namespace lockstep::optest::matrix_products
