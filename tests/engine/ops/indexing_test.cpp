// Taking and scattering by indices, positions of extremes, cumulative sums and casts: values beside
// loops in fp64, derivatives, sizes of 0 and 1, memory that was filled, and errors.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <random>

#include "lockstep/base/error.h"
#include "lockstep/engine/ops/op_makers.h"
#include "tests/engine/ops/harness.h"

namespace lockstep::optest::indexing {
namespace {

using Dims = std::vector<int64_t>;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Parts {
  int64_t outer = 1, size = 1, inner = 1;
  Parts(const Dims& dims, size_t axis) : size(dims[axis]) {
    for (size_t a = 0; a < axis; ++a) outer *= dims[a];
    for (size_t a = axis + 1; a < dims.size(); ++a) inner *= dims[a];
  }
};

Array random_indices(const Dims& dims, int64_t below, uint64_t seed) {
  Array indices(dims);
  std::mt19937_64 random(seed);
  for (double& i : indices.values) {
    i = static_cast<double>(random() % static_cast<uint64_t>(below));
  }
  return indices;
}

// The element of x that element n of the result of taking reads.
int64_t source(const Parts& x, int64_t count, const Array& indices, bool per_element, int64_t n) {
  const int64_t i = n % x.inner, j = n / x.inner % count, o = n / x.inner / count;
  const auto index = static_cast<int64_t>(indices[per_element ? n : j]);
  return (o * x.size + index) * x.inner + i;
}

struct Row {
  Dims x, indices, taken;
  int axis = 0;
  bool per_element = false;
};

const std::vector<Row>& rows() {
  static const std::vector<Row> all{{{1}, {1}, {1}, 0},
                                    {{5}, {}, {}, 0},
                                    {{5}, {7}, {7}, 0},
                                    {{5}, {0}, {0}, 0},
                                    {{9, 4}, {3, 5}, {3, 5, 4}, 0},
                                    {{3, 7}, {20}, {3, 20}, 1},
                                    {{2, 6, 3, 5}, {4, 2}, {2, 4, 2, 3, 5}, 1},
                                    {{3, 600}, {9}, {9, 600}, 0},
                                    {{0, 4}, {6}, {0, 6}, 1},
                                    {{5}, {8}, {8}, 0, true},
                                    {{3, 7}, {3, 1}, {3, 1}, 1, true},
                                    {{3, 7}, {11, 7}, {11, 7}, 0, true},
                                    {{2, 6, 3, 19}, {2, 9, 3, 19}, {2, 9, 3, 19}, 1, true},
                                    {{2, 3, 4}, {2, 3, 0}, {2, 3, 0}, 2, true}};
  return all;
}

int64_t count_of(const Row& row) {
  const Parts parts(row.x, static_cast<size_t>(row.axis));
  if (row.per_element) return row.indices[static_cast<size_t>(row.axis)];
  return Shape(row.indices).elements();
}

Case take_case(const Row& row, DType type) {
  const Parts x(row.x, static_cast<size_t>(row.axis));
  const int64_t count = count_of(row);
  Case c;
  c.name = Shape(row.x).to_string() + " by " + Shape(row.indices).to_string() + " " +
           std::string(name_of(type));
  c.op = ops::make_take(row.axis, row.per_element);
  c.inputs = {{random_array(row.x, 1)},
              {random_indices(row.indices, std::max<int64_t>(x.size, 1), 2), type, false}};
  c.forward = [=](const std::vector<Array>& in) {
    Array y(row.taken);
    for (int64_t n = 0; n < y.count(); ++n) {
      y[n] = in[0][source(x, count, in[1], row.per_element, n)];
    }
    return std::vector<Array>{y};
  };
  c.backward = [=](const std::vector<Array>& in, const Array& dy) {
    Array dx(row.x);
    for (int64_t n = 0; n < dy.count(); ++n) {
      dx[source(x, count, in[1], row.per_element, n)] += dy[n];
    }
    return std::vector<Array>{dx, Array(Dims{0})};
  };
  return c;
}

Case scatter_case(const Row& row) {
  const Case take = take_case(row, DType::i32);
  Case c;
  c.name = "to " + take.name;
  c.op = ops::make_scatter_add(Shape(row.x), row.axis, row.per_element);
  c.inputs = {{random_array(row.taken, 3)}, take.inputs[1]};
  c.forward = [=](const std::vector<Array>& in) {
    return std::vector<Array>{take.backward({Array(row.x), in[1]}, in[0])[0]};
  };
  c.backward = [=](const std::vector<Array>& in, const Array& dy) {
    return std::vector<Array>{take.forward({dy, in[1]})[0], Array(Dims{0})};
  };
  return c;
}

void check(const Case& c) {
  SCOPED_TRACE(c.name);
  for (const Device device : devices()) {
    check_forward(device, c);
    check_gradients(device, c);
    check_second_derivatives(device, c);
  }
}

TEST(Indexing, TakesAndItsDerivatives) {
  for (const Row& row : rows()) {
    check(take_case(row, DType::i32));
    check(take_case(row, DType::i64));
  }
}

TEST(Indexing, ScattersAndItsDerivatives) {
  for (const Row& row : rows()) check(scatter_case(row));
}

// 1 is lost beside 2^24 in f32, unless sums are in double and rounded once.
TEST(Indexing, UpdatesOfAPlaceAreAddedInDoubleInOrder) {
  const std::vector<float> updates{0x1p24f, 1, 1, -0x1p24f, 5, 0.25f};
  for (const bool per_element : {false, true}) {
    const Tensor indices = Tensor::from(std::vector<int32_t>{2, 2, 2, 2, 0, 0}, {6});
    const Tensor y = apply_op(ops::make_scatter_add({4}, 0, per_element),
                              {Tensor::from(updates, {6}), indices})[0];
    EXPECT_EQ(y.to_vector(), (std::vector<float>{5.25f, 0, 2, 0}));
  }
  // Double, too, has an order.
  const Tensor large = Tensor::from(std::vector<float>{0x1p60f, 1, -0x1p60f, 1}, {4});
  const Tensor zeros = Tensor::zeros({4}, DType::i64);
  EXPECT_EQ(ops::scatter_add(large, zeros, {1}, 0).to_vector(), std::vector<float>{1});
}

// Indices that are not known before the op runs read and write nothing.
TEST(Indexing, OutsideOfTheAxisIsNothing) {
  const Tensor x = Tensor::from(std::vector<float>{1, 2, 3, 4, 5, 6}, {3, 2});
  const Tensor whole = Tensor::from(std::vector<int64_t>{1, 2, 3, 4, 5, 6}, {3, 2});
  const auto indices = [](std::vector<int64_t> values) {
    const auto count = static_cast<int64_t>(values.size());
    return Tensor::from(values, Shape{count});
  };
  const Tensor wild =
      indices({3, -1, 1, std::numeric_limits<int64_t>::max(), std::numeric_limits<int64_t>::min()});
  const std::vector<float> taken = apply_op(ops::make_take(0, false), {x, wild})[0].to_vector();
  const Tensor of_whole = apply_op(ops::make_take(0, false), {whole, wild})[0];
  ASSERT_EQ(of_whole.dtype(), DType::i64);
  for (size_t n = 0; n < taken.size(); ++n) {
    const bool inside = n / 2 == 2;
    EXPECT_EQ(std::isnan(taken[n]), !inside) << n;
    EXPECT_EQ(of_whole.data<int64_t>()[n], inside ? static_cast<int64_t>(n % 2 + 3) : 0) << n;
  }
  const Tensor ones = ops::broadcast_to(Tensor::from(std::vector<float>{1}, {1}), {5, 2});
  EXPECT_EQ(apply_op(ops::make_scatter_add({3, 2}, 0, false), {ones, wild})[0].to_vector(),
            (std::vector<float>{0, 0, 1, 1, 0, 0}));
  Tape tape;
  tape.watch({ones});
  const Tensor added = apply_op(ops::make_scatter_add({3, 2}, 0, false), {ones, wild})[0];
  EXPECT_EQ(tape.gradient(ops::sum(added), {ones})[0].to_vector(),
            (std::vector<float>{0, 0, 0, 0, 1, 1, 0, 0, 0, 0}));
  const Tensor each = Tensor::from(std::vector<int32_t>{0, 7, -1, 1}, {2, 2});
  const std::vector<float> gathered = apply_op(ops::make_take(0, true), {x, each})[0].to_vector();
  EXPECT_EQ(gathered[0], 1);
  EXPECT_TRUE(std::isnan(gathered[1]) && std::isnan(gathered[2]));
  EXPECT_EQ(gathered[3], 4);
  EXPECT_EQ(apply_op(ops::make_scatter_add({3, 2}, 0, true),
                     {Tensor::from(std::vector<float>{1, 2, 3, 4}, {2, 2}), each})[0]
                .to_vector(),
            (std::vector<float>{1, 0, 0, 4, 0, 0}));
}

TEST(Indexing, AnEmbeddingAddsTheGradientsOfEqualIndices) {
  const Tensor weights = tensor_of(random_array({4, 3}, 1));
  const Tensor indices = Tensor::from(std::vector<int64_t>{2, 0, 2, 2}, {2, 2});
  Tape tape;
  tape.watch(weights);
  const Tensor y = ops::embedding(weights, indices);
  EXPECT_EQ(y.shape(), (Shape{2, 2, 3}));
  EXPECT_EQ(tape.gradient(ops::sum(y), {weights})[0].to_vector(),
            (std::vector<float>{1, 1, 1, 0, 0, 0, 3, 3, 3, 0, 0, 0}));
}

// Beside a search from the front, with NaN, infinities and ties.
TEST(AlongAxis, FirstPositionsOfExtremes) {
  std::mt19937_64 random(3);
  for (const Dims& dims : {Dims{1}, Dims{17}, Dims{1000}, Dims{3, 40}, Dims{40, 3}, Dims{2, 9, 300},
                           Dims{2, 33, 1, 5}, Dims{0, 3}}) {
    Array x(dims);
    for (double& v : x.values) {
      const uint64_t kind = random() % 40;
      v = kind == 0 ? kNaN : kind == 1 ? kInfinity : kind == 2 ? -kInfinity : 0;
      if (kind > 2) v = static_cast<double>(random() % 7) - 3;
    }
    const Tensor tensor = tensor_of(x);
    for (size_t axis = 0; axis < dims.size(); ++axis) {
      if (dims[axis] == 0) continue;
      const Parts p(dims, axis);
      for (const bool smallest : {false, true}) {
        const Tensor y = smallest ? ops::argmin(tensor, static_cast<int>(axis), true)
                                  : ops::argmax(tensor, static_cast<int>(axis), true);
        Dims kept = dims;
        kept[axis] = 1;
        EXPECT_EQ(y.shape(), Shape(kept));
        ASSERT_EQ(y.dtype(), DType::i64);
        for (int64_t n = 0; n < y.shape().elements(); ++n) {
          const int64_t from = n / p.inner * p.size * p.inner + n % p.inner;
          int64_t best = 0;
          for (int64_t k = 1; k < p.size; ++k) {
            const double a = x[from + best * p.inner], b = x[from + k * p.inner];
            if (std::isnan(a)) break;
            if (std::isnan(b) || (smallest ? b < a : b > a)) best = k;
          }
          ASSERT_EQ(y.data<int64_t>()[n], best) << Shape(dims).to_string() << " " << n;
        }
      }
    }
  }
  EXPECT_EQ(ops::argmax(Tensor::zeros({2, 3}), -1).shape(), (Shape{2}));
}

Case cumsum_case(const Dims& dims, int axis) {
  const Parts p(dims, static_cast<size_t>(axis));
  const auto sum = [=](const Array& x, bool reverse) {
    Array y(dims);
    for (int64_t n = 0; n < x.count(); ++n) {
      const int64_t k = n / p.inner % p.size;
      for (int64_t j = reverse ? k : 0; j < (reverse ? p.size : k + 1); ++j) {
        y[n] += x[n + (j - k) * p.inner];
      }
    }
    return y;
  };
  Case c;
  c.name = "cumsum of " + Shape(dims).to_string() + " along " + std::to_string(axis);
  c.op = ops::make_cumsum(axis, false);
  c.inputs = {{random_array(dims, 4)}};
  c.forward = [=](const std::vector<Array>& in) { return std::vector<Array>{sum(in[0], false)}; };
  c.backward = [=](const std::vector<Array>&, const Array& dy) {
    return std::vector<Array>{sum(dy, true)};
  };
  return c;
}

TEST(AlongAxis, CumulativeSumsAndTheirDerivatives) {
  check(cumsum_case({1}, 0));
  check(cumsum_case({300}, 0));
  check(cumsum_case({11, 5}, 1));
  check(cumsum_case({5, 11}, 0));
  check(cumsum_case({2, 7, 3, 2}, 1));
  check(cumsum_case({2, 3, 600}, 1));
  check(cumsum_case({0, 4}, 1));
  check(cumsum_case({4, 0}, 1));
  check(cumsum_case({3, 4, 0}, 1));
  check(cumsum_case({2, 0}, 0));
  const Tensor large = Tensor::from(std::vector<float>{0x1p24f, 1, 1, -0x1p24f}, {4});
  EXPECT_EQ(ops::cumsum(large, 0).to_vector(),
            (std::vector<float>{0x1p24f, 0x1p24f, 0x1p24f + 2, 2}));
}

template <class To>
std::vector<To> cast_of(const Tensor& x) {
  const Tensor y = ops::astype(x, DTypeOf<To>::value);
  EXPECT_EQ(y.dtype(), DTypeOf<To>::value);
  const To* const first = y.data<To>();
  return {first, first + y.shape().elements()};
}

TEST(Cast, CutsTowardZeroAndSaturates) {
  constexpr auto kLeast32 = std::numeric_limits<int32_t>::min(),
                 kMost32 = std::numeric_limits<int32_t>::max();
  constexpr auto kLeast64 = std::numeric_limits<int64_t>::min(),
                 kMost64 = std::numeric_limits<int64_t>::max();
  const Tensor x = Tensor::from(
      std::vector<float>{1.9f, -1.9f, -0.0f, kNaN, kInfinity, -kInfinity, 0x1p31f, -0x1p31f,
                         0x1p31f - 128, 0x1p63f, -0x1p63f, 254.9f, 255.9f, 256, -0.9f, 0x1p40f},
      {16});
  EXPECT_EQ(cast_of<int32_t>(x),
            (std::vector<int32_t>{1, -1, 0, 0, kMost32, kLeast32, kMost32, kLeast32, kMost32 - 127,
                                  kMost32, kLeast32, 254, 255, 256, 0, kMost32}));
  EXPECT_EQ(cast_of<int64_t>(x),
            (std::vector<int64_t>{1, -1, 0, 0, kMost64, kLeast64, int64_t{1} << 31,
                                  -(int64_t{1} << 31), (int64_t{1} << 31) - 128, kMost64, kLeast64,
                                  254, 255, 256, 0, int64_t{1} << 40}));
  EXPECT_EQ(cast_of<uint8_t>(x),
            (std::vector<uint8_t>{1, 0, 0, 0, 255, 0, 255, 0, 255, 255, 0, 254, 255, 255, 0, 255}));
  const Tensor whole = Tensor::from(
      std::vector<int64_t>{kLeast64, -1, 0, 200, 300, (int64_t{1} << 24) + 1, kMost64}, {7});
  EXPECT_EQ(cast_of<int32_t>(whole),
            (std::vector<int32_t>{kLeast32, -1, 0, 200, 300, (1 << 24) + 1, kMost32}));
  EXPECT_EQ(cast_of<uint8_t>(whole), (std::vector<uint8_t>{0, 0, 0, 200, 255, 255, 255}));
  EXPECT_EQ(cast_of<float>(whole),
            (std::vector<float>{-0x1p63f, -1, 0, 200, 300, 0x1p24f, 0x1p63f}));
  EXPECT_EQ(cast_of<float>(Tensor::from(std::vector<uint8_t>{0, 255}, {2})),
            (std::vector<float>{0, 255}));
  EXPECT_TRUE(cast_of<int64_t>(Tensor::zeros({0})).empty());
  Tape tape;
  tape.watch(x);
  EXPECT_EQ(tape.gradient(ops::sum(ops::astype(x, DType::f32)), {x})[0].to_vector(),
            std::vector<float>(16, 1));
}

TEST(Indexing, OneHotTakesIndicesOfAnyRankAndBothTypes) {
  const std::vector<float> expected{0, 0, 1, 1, 0, 0};
  const Tensor narrow = ops::one_hot(Tensor::from(std::vector<int32_t>{2, 0}, {2, 1}), 3);
  EXPECT_EQ(narrow.shape(), (Shape{2, 1, 3}));
  EXPECT_EQ(narrow.to_vector(), expected);
  EXPECT_EQ(ops::one_hot(Tensor::from(std::vector<int64_t>{2, 0}, {2}), 3).to_vector(), expected);
}

// Positions are moved as numbers are.
TEST(Indexing, IndicesCanBeMoved) {
  const Tensor x = tensor_of(random_array({4, 3, 5}, 8));
  const Tensor at = ops::argmax(x, 1);
  const Tensor moved = ops::flip(ops::permute_dims(at, {1, 0}), {0});
  ASSERT_EQ(moved.shape(), (Shape{5, 4}));
  ASSERT_EQ(moved.dtype(), DType::i64);
  for (int64_t i = 0; i < 5; ++i) {
    for (int64_t j = 0; j < 4; ++j) {
      EXPECT_EQ(moved.data<int64_t>()[i * 4 + j], at.data<int64_t>()[j * 5 + 4 - i]);
    }
  }
  EXPECT_EQ(ops::slice(at, {{1, 3}, {0, 5, 2}}).shape(), (Shape{2, 3}));
}

TEST(Indexing, WhatDoesNotFitIsNamed) {
  const Tensor x = Tensor::zeros({4, 3}), floats = Tensor::zeros({2});
  const auto whole = [](std::vector<int32_t> values, const Shape& shape) {
    return Tensor::from(values, shape);
  };
  using namespace ops;
  const Tensor one = whole({1}, {1});
  expect_refusal([&] { take(x, floats, 0); }, {"[take]", "i32 or i64", "2 f32", "4x3"});
  expect_refusal([&] { take(x, one, 2); }, {"[take]", "4x3", "no axis 2"});
  expect_refusal(
      [&] {
        take(x, whole({0, 4}, {2}), 0);
      },
      {"[take]", "index 4", "position 1", "axis 0"});
  expect_refusal([&] { take(x, whole({-1}, {1}), -1); }, {"[take]", "index -1", "position 0"});
  expect_refusal([&] { embedding(x, whole({9}, {1})); }, {"[embedding]", "index 9", "position 0"});
  expect_refusal([&] { embedding(floats, one); }, {"[embedding]", "v x d", "2"});
  expect_refusal([&] { gather(x, whole({0, 0}, {2, 1}), 1); }, {"[gather]", "2x1 i32", "4x3"});
  expect_refusal([&] { gather(x, whole({0}, {1}), 1); }, {"[gather]", "shape of x"});
  expect_refusal(
      [&] {
        gather(x, whole({0, 0, 3, 0}, {4, 1}), 1);
      },
      {"[gather]", "index 3", "position 2"});
  expect_refusal([&] { ops::scatter_add(Tensor::zeros({2}), one, {4}, 0); },
                 {"[scatter_add]", "updates of 1", "received 2"});
  expect_refusal([&] { ops::scatter_add(Tensor::zeros({1}), whole({4}, {1}), {4}, 0); },
                 {"[scatter_add]", "index 4"});
  expect_refusal([&] { ops::scatter_add(Tensor::zeros({1}), one, {4}, 1); },
                 {"[scatter_add]", "no axis 1"});
  expect_refusal([&] { argmax(Tensor::zeros({2, 0}), 1); }, {"[argmax]", "no elements", "2x0"});
  expect_refusal([&] { argmin(one, 0); }, {"[argmin]", "f32", "i32"});
  expect_refusal([&] { argmin(x, 5); }, {"[argmin]", "no axis 5"});
  expect_refusal([&] { cumsum(x, -3); }, {"[cumsum]", "no axis -3"});
  expect_refusal([&] { cumsum(one, 0); }, {"[cumsum]", "f32", "i32"});
  expect_refusal([&] { astype(x, DType::bf16); }, {"[astype]", "bf16"});
  expect_refusal([&] { one_hot(floats, 3); }, {"[one_hot]", "f32"});
}

}  // namespace
}  // namespace lockstep::optest::indexing
