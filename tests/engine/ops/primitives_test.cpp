// Elementwise functions with broadcasting, reductions along axes and views: values, gradients and
// second derivatives beside fp64.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <random>

#include "lockstep/base/error.h"
#include "lockstep/engine/kernels/shapes/strided_copy.h"
#include "lockstep/engine/ops/ops.h"
#include "lockstep/engine/ops/pointwise.h"
#include "lockstep/engine/ops/reduce.h"
#include "tests/engine/ops/harness.h"

namespace lockstep::optest::primitives {
namespace {

using Arguments = std::vector<double>;
using Function = std::function<double(const Arguments&)>;
using Dims = std::vector<int64_t>;

// The element of `array` that index `i` of the shape `dims` reads by broadcasting.
int64_t offset_of(const Array& array, const Dims& dims, int64_t i) {
  int64_t offset = 0, stride = 1;
  for (size_t a = dims.size(); a-- > 0;) {
    const int64_t at = i % dims[a];
    i /= dims[a];
    const size_t missing = dims.size() - array.dims.size();
    if (a < missing) continue;
    const int64_t size = array.dims[a - missing];
    if (size > 1) offset += at * stride;
    stride *= size;
  }
  return offset;
}

// Derivatives of `f` are central differences.
Case case_of(const std::string& name, OpPtr op, std::vector<Array> inputs, const Dims& dims,
             const Function& f, const std::vector<bool>& gradients) {
  Case c;
  c.name = name;
  c.op = std::move(op);
  for (size_t k = 0; k < inputs.size(); ++k)
    c.inputs.push_back({inputs[k], DType::f32, gradients[k]});
  const auto arguments = [dims](const std::vector<Array>& in, int64_t i) {
    Arguments x;
    for (const Array& array : in) x.push_back(array[offset_of(array, dims, i)]);
    return x;
  };
  c.forward = [=](const std::vector<Array>& in) {
    Array y(dims);
    for (int64_t i = 0; i < y.count(); ++i) y[i] = f(arguments(in, i));
    return std::vector<Array>{y};
  };
  c.backward = [=](const std::vector<Array>& in, const Array& dy) {
    std::vector<Array> diffs;
    for (size_t k = 0; k < in.size(); ++k) {
      diffs.emplace_back(gradients[k] ? in[k].dims : Dims{0});
      for (int64_t i = 0; gradients[k] && i < dy.count(); ++i) {
        constexpr double h = 1e-4;
        Arguments above = arguments(in, i), below = above;
        above[k] += h;
        below[k] -= h;
        diffs.back()[offset_of(in[k], dims, i)] += dy[i] * (f(above) - f(below)) / (2 * h);
      }
    }
    return diffs;
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

TEST(Primitives, FunctionsOfOneArgumentAndTheirDerivatives) {
  const std::map<std::string, std::pair<Function, std::pair<double, double>>> known{
      {"negate", {[](const Arguments& x) { return -x[0]; }, {-2, 2}}},
      {"abs", {[](const Arguments& x) { return std::abs(x[0]); }, {0.1, 2}}},
      {"sign", {[](const Arguments& x) { return x[0] < 0 ? -1.0 : 1.0; }, {-2, -0.1}}},
      {"reciprocal", {[](const Arguments& x) { return 1 / x[0]; }, {0.5, 2}}},
      {"square", {[](const Arguments& x) { return x[0] * x[0]; }, {-2, 2}}},
      {"sqrt", {[](const Arguments& x) { return std::sqrt(x[0]); }, {0.5, 2}}},
      {"rsqrt", {[](const Arguments& x) { return 1 / std::sqrt(x[0]); }, {0.5, 2}}},
      {"exp", {[](const Arguments& x) { return std::exp(x[0]); }, {-2, 2}}},
      {"expm1", {[](const Arguments& x) { return std::expm1(x[0]); }, {-2, 2}}},
      {"log", {[](const Arguments& x) { return std::log(x[0]); }, {0.5, 3}}},
      {"log1p", {[](const Arguments& x) { return std::log1p(x[0]); }, {-0.5, 3}}},
      {"sin", {[](const Arguments& x) { return std::sin(x[0]); }, {-4, 4}}},
      {"cos", {[](const Arguments& x) { return std::cos(x[0]); }, {-4, 4}}},
      {"log2", {[](const Arguments& x) { return std::log2(x[0]); }, {0.5, 3}}},
      {"tan", {[](const Arguments& x) { return std::tan(x[0]); }, {-1, 1}}},
      {"erf", {[](const Arguments& x) { return std::erf(x[0]); }, {-2, 2}}},
      {"erfc", {[](const Arguments& x) { return std::erfc(x[0]); }, {-2, 2}}},
      {"floor", {[](const Arguments& x) { return std::floor(x[0]); }, {0.1, 0.9}}},
      {"ceil", {[](const Arguments& x) { return std::ceil(x[0]); }, {0.1, 0.9}}},
      {"round", {[](const Arguments& x) { return std::nearbyint(x[0]); }, {0.6, 1.4}}}};
  size_t listed = 0;
  for (const Dims& dims : {Dims{}, Dims{1}, Dims{3, 5}, Dims{2, 17, 3, 3}}) {
    uint64_t seed = 0;
#define LOCKSTEP_CHECK(name, text)                                                            \
  {                                                                                           \
    const auto& [f, range] = known.at(#name);                                                 \
    check(case_of(#name, ops::make_pointwise(kernels::Opcode::name),                          \
                  {random_array(dims, ++seed, range.first, range.second)}, dims, f, {true})); \
    ++listed;                                                                                 \
  }
    LOCKSTEP_UNARY_OPS(LOCKSTEP_CHECK)
#undef LOCKSTEP_CHECK
  }
  EXPECT_EQ(listed, 4 * known.size());
}

TEST(Primitives, FunctionsOfTwoArgumentsAndTheirDerivatives) {
  const std::map<std::string, Function> known{
      {"add", [](const Arguments& x) { return x[0] + x[1]; }},
      {"subtract", [](const Arguments& x) { return x[0] - x[1]; }},
      {"multiply", [](const Arguments& x) { return x[0] * x[1]; }},
      {"divide", [](const Arguments& x) { return x[0] / x[1]; }},
      {"pow", [](const Arguments& x) { return std::pow(x[0], x[1]); }},
      {"maximum", [](const Arguments& x) { return std::max(x[0], x[1]); }},
      {"minimum", [](const Arguments& x) { return std::min(x[0], x[1]); }},
      {"equal", [](const Arguments& x) { return x[0] == x[1] ? 1.0 : 0.0; }},
      {"less", [](const Arguments& x) { return x[0] < x[1] ? 1.0 : 0.0; }},
      {"less_equal", [](const Arguments& x) { return x[0] <= x[1] ? 1.0 : 0.0; }}};
  struct Row {
    Dims a, b, y;
  };
  const Row rows[] = {{{}, {}, {}},
                      {{3, 5}, {3, 5}, {3, 5}},
                      {{3, 5}, {5}, {3, 5}},
                      {{3, 1}, {1, 5}, {3, 5}},
                      {{}, {2, 3, 4}, {2, 3, 4}},
                      {{2, 1, 4, 1}, {3, 1, 5}, {2, 3, 4, 5}}};
  size_t listed = 0;
  for (const Row& row : rows) {
    uint64_t seed = 10;
#define LOCKSTEP_CHECK(name, text)                                                            \
  {                                                                                           \
    check(case_of(#name, ops::make_pointwise(kernels::Opcode::name),                          \
                  {random_array(row.a, ++seed, 0.5, 2), random_array(row.b, ++seed, 0.5, 2)}, \
                  row.y, known.at(#name), {true, true}));                                     \
    ++listed;                                                                                 \
  }
    LOCKSTEP_BINARY_OPS(LOCKSTEP_CHECK)
#undef LOCKSTEP_CHECK
  }
  EXPECT_EQ(listed, std::size(rows) * known.size());
  // Elements that are not taken reach neither the result nor a derivative.
  Array condition = random_array({4, 5}, 1);
  for (double& x : condition.values) x = x > 0 ? 1 : 0;
  check(case_of("where", ops::make_pointwise(kernels::Opcode::where),
                {condition, random_array({4, 5}, 2), random_array({5}, 3)}, {4, 5},
                [](const Arguments& x) { return x[0] != 0 ? x[1] : x[2]; }, {false, true, true}));
}

// Every element of the result is the sum of the listed elements of x times `share`.
Case linear(const std::string& name, OpPtr op, const Array& x, const Dims& dims,
            const std::function<std::vector<int64_t>(int64_t)>& sources, double share = 1) {
  Case c;
  c.name = name;
  c.op = std::move(op);
  c.inputs = {{x}};
  c.forward = [=](const std::vector<Array>& in) {
    Array y(dims);
    for (int64_t i = 0; i < y.count(); ++i) {
      for (const int64_t from : sources(i)) y[i] += share * in[0][from];
    }
    return std::vector<Array>{y};
  };
  c.backward = [=](const std::vector<Array>& in, const Array& dy) {
    Array dx(in[0].dims);
    for (int64_t i = 0; i < dy.count(); ++i) {
      for (const int64_t from : sources(i)) dx[from] += share * dy[i];
    }
    return std::vector<Array>{dx};
  };
  return c;
}

TEST(Primitives, SumsAndMeansAlongAxes) {
  using kernels::Reduction;
  const Array x = random_array({3, 4, 5}, 1);
  for (const bool keep : {false, true}) {
    for (const bool mean : {false, true}) {
      const auto reduced = [&](std::vector<int> axes) {
        return ops::make_reduce(Reduction::sum, std::move(axes), keep, mean);
      };
      check(linear(
          "middle", reduced({1}), x, keep ? Dims{3, 1, 5} : Dims{3, 5},
          [](int64_t i) {
            std::vector<int64_t> from;
            for (int64_t a = 0; a < 4; ++a) from.push_back(i / 5 * 20 + a * 5 + i % 5);
            return from;
          },
          mean ? 0.25 : 1));
      check(linear(
          "first and last", reduced({-1, 0}), x, keep ? Dims{1, 4, 1} : Dims{4},
          [](int64_t i) {
            std::vector<int64_t> from;
            for (int64_t a = 0; a < 15; ++a) from.push_back(a / 5 * 20 + i * 5 + a % 5);
            return from;
          },
          mean ? 1.0 / 15 : 1));
    }
  }
}

TEST(Primitives, ViewsAndTheirDerivatives) {
  const Tensor x = tensor_of(random_array({3, 4, 5}, 2));
  const std::vector<float> v = x.to_vector();
  const auto at = [&](int64_t i, int64_t j, int64_t k) {
    return v[static_cast<size_t>((i * 4 + j) * 5 + k)];
  };
  const Tensor turned = ops::permute_dims(x, {2, 0, -2});
  EXPECT_EQ(turned.shape(), (Shape{5, 3, 4}));
  const Tensor part = ops::slice(x, {{}, {-1, 0, -2}, {1, 100, 2}});
  EXPECT_EQ(part.shape(), (Shape{3, 2, 2}));
  const Tensor wide = ops::broadcast_to(x, {2, 3, 4, 5});
  EXPECT_EQ(wide.shape(), (Shape{2, 3, 4, 5}));
  const std::vector<float> t = turned.to_vector(), p = part.to_vector(), w = wide.to_vector();
  for (int64_t i = 0; i < 3; ++i) {
    for (int64_t j = 0; j < 4; ++j) {
      for (int64_t k = 0; k < 5; ++k) {
        EXPECT_EQ(t[static_cast<size_t>((k * 3 + i) * 4 + j)], at(i, j, k));
        EXPECT_EQ(w[static_cast<size_t>(60 + (i * 4 + j) * 5 + k)], at(i, j, k));
      }
    }
    for (int64_t j = 0; j < 2; ++j) {
      for (int64_t k = 0; k < 2; ++k) {
        EXPECT_EQ(p[static_cast<size_t>((i * 2 + j) * 2 + k)], at(i, 3 - 2 * j, 1 + 2 * k));
      }
    }
  }
  // Squares of a view: the gradient is twice the view, in its places; the second derivative is 2.
  const auto derivatives = [&](const std::function<Tensor(const Tensor&)>& view) {
    Tape tape;
    tape.watch(x);
    const Tensor y = view(x);
    const Tensor dx = tape.gradient(ops::sum(ops::square(y)), {x}, {.create_graph = true})[0];
    return std::pair(dx.to_vector(), tape.gradient(ops::sum(dx), {x})[0].to_vector());
  };
  const auto of_turned = derivatives([](const Tensor& of) {
    return ops::permute_dims(of, {2, 0, 1});
  });
  const auto of_part = derivatives([](const Tensor& of) {
    return ops::slice(of, {{}, {-1, 0, -2}, {1, 100, 2}});
  });
  const auto of_wide = derivatives([](const Tensor& of) {
    return ops::broadcast_to(of, {2, 3, 4, 5});
  });
  for (size_t i = 0; i < v.size(); ++i) {
    const size_t j = i / 5 % 4, k = i % 5;
    const float taken = (j == 3 || j == 1) && (k == 1 || k == 3) ? 1 : 0;
    EXPECT_FLOAT_EQ(of_turned.first[i], 2 * v[i]);
    EXPECT_EQ(of_turned.second[i], 2);
    EXPECT_FLOAT_EQ(of_part.first[i], 2 * taken * v[i]);
    EXPECT_EQ(of_part.second[i], 2 * taken);
    EXPECT_FLOAT_EQ(of_wide.first[i], 4 * v[i]);
    EXPECT_EQ(of_wide.second[i], 4);
  }
}

// Random strides, also negative ones and 0, between places that are all distinct if elements are
// put there.
TEST(Primitives, StridedCopiesMoveEveryElementToItsPlace) {
  std::mt19937_64 random(5);
  const auto below = [&](int64_t limit) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(limit));
  };
  int64_t copied = 0, empty = 0;
  for (int round = 0; round < 600; ++round) {
    const bool scatter = round % 2 == 1;
    // The axes of a tensor in a random order, every `step`-th element, from one end or the other.
    const int rank = static_cast<int>(below(5));
    const int64_t longest = round % 10 == 0 ? 60 : 9;
    std::vector<int64_t> whole, strides, dims;
    for (int a = 0; a < rank; ++a) whole.push_back(below(20) == 0 ? 0 : 1 + below(longest));
    int64_t offset = 0, stride = 1;
    for (int a = rank; a-- > 0;) {
      const int64_t size = whole[static_cast<size_t>(a)], step = 1 + below(3);
      const bool backward = below(2) == 0;
      if (backward && size > 0) offset += (size - 1) * stride;
      dims.push_back((size + step - 1) / step);
      strides.push_back((backward ? -step : step) * stride);
      stride *= size;
    }
    for (size_t a = 0; a < dims.size(); ++a) {
      const size_t other = a + static_cast<size_t>(below(static_cast<int64_t>(dims.size() - a)));
      std::swap(dims[a], dims[other]);
      std::swap(strides[a], strides[other]);
    }
    if (!scatter && below(2) == 0) {
      dims.push_back(1 + below(5));
      strides.push_back(0);
    }
    const Shape strided(whole), walked(dims);
    const DType type = round % 3 == 0 ? DType::u8 : round % 3 == 1 ? DType::i32 : DType::f32;
    const Tensor from = tensor_of(random_array(scatter ? dims : whole, random(), 0, 200), type);
    const Tensor to(scatter ? strided : walked, type);
    std::memset(to.raw(), 0x77, to.bytes());
    const kernels::StridedCopyProblem p{from.spec(), to.shape(), offset, strides, scatter};
    run_pass(kernels::compile(kernels::table_for({}), p).forward, {from}, {to});
    const size_t size = size_of(type);
    const auto* const source = static_cast<const std::byte*>(from.raw());
    std::vector<std::byte> expected(to.bytes(), std::byte{0});
    for (int64_t i = 0; i < walked.elements(); ++i) {
      int64_t place = offset, rest = i;
      for (size_t a = dims.size(); a-- > 0; rest /= dims[a]) place += rest % dims[a] * strides[a];
      const auto at = static_cast<size_t>(scatter ? place : i) * size;
      std::memcpy(expected.data() + at, source + static_cast<size_t>(scatter ? i : place) * size,
                  size);
    }
    ASSERT_TRUE(expected.empty() || std::memcmp(expected.data(), to.raw(), to.bytes()) == 0)
        << round << ": " << from.spec().to_string() << " to " << to.spec().to_string();
    copied += walked.elements();
    empty += walked.elements() == 0;
  }
  EXPECT_GT(copied, 100'000);
  EXPECT_GT(empty, 10);
  const kernels::Table& table = kernels::table_for({});
  const TensorSpec spec{{4}, DType::f32, nullptr};
  EXPECT_THROW(kernels::compile(table, kernels::StridedCopyProblem{spec, {3}, 0, {2}}),
               InvalidArgument);
  EXPECT_THROW(kernels::compile(table, kernels::StridedCopyProblem{spec, {3}, 0, {1, 1}}),
               InvalidArgument);
}

TEST(Primitives, ExtremesShareDerivativesAmongEqualElements) {
  const Tensor x = Tensor::from(std::vector<float>{1, 3, 3, 2, -1, -1}, {2, 3});
  Tape tape;
  tape.watch(x);
  const Tensor top = ops::max(x, {1}), bottom = ops::min(x, {-1}, true);
  EXPECT_EQ(top.to_vector(), (std::vector<float>{3, 2}));
  EXPECT_EQ(bottom.shape(), (Shape{2, 1}));
  EXPECT_EQ(tape.gradient(ops::sum(top), {x})[0].to_vector(),
            (std::vector<float>{0, 0.5, 0.5, 1, 0, 0}));
  EXPECT_EQ(tape.gradient(ops::sum(bottom), {x})[0].to_vector(),
            (std::vector<float>{1, 0, 0, 0, 0.5, 0.5}));
}

TEST(Primitives, WhatDoesNotFitIsNamed) {
  const Tensor a = Tensor::zeros({2, 3}), b = Tensor::zeros({4}), none = Tensor::zeros({2, 0});
  const Tensor labels = Tensor::zeros({2, 3}, DType::i32);
  expect_refusal([&] { ops::add(a, b); }, {"[add]", "cannot be broadcast", "2x3", "4"});
  expect_refusal([&] { a / b; }, {"[divide]"});
  expect_refusal([&] { ops::exp(labels); }, {"[exp]", "f32", "i32"});
  expect_refusal([&] { ops::sum(a, {2}); }, {"[sum]", "2x3", "no axis 2"});
  expect_refusal([&] { ops::mean(a, {1, -1}); }, {"[mean]", "twice"});
  expect_refusal([&] { ops::max(none, {1}); }, {"[max]", "no elements"});
  expect_refusal([&] { ops::broadcast_to(a, {3, 3}); }, {"[broadcast_to]", "2x3", "3x3"});
  expect_refusal([&] { ops::permute_dims(a, {0}); }, {"[permute_dims]", "2 axes"});
  expect_refusal([&] { ops::permute_dims(a, {0, 0}); }, {"[permute_dims]", "twice"});
  expect_refusal([&] { ops::slice(a, {{0, 1, 0}}); }, {"[slice]", "step", "0"});
  expect_refusal([&] { ops::slice(a, {{}, {}, {}}); }, {"[slice]", "3 ranges", "2x3"});
  EXPECT_EQ(ops::sum(none, {1}).to_vector(), (std::vector<float>{0, 0}));
  EXPECT_EQ(ops::exp(none).shape(), none.shape());
  EXPECT_EQ(ops::slice(a, {{1, 1}}).shape(), (Shape{0, 3}));
}

}  // namespace
}  // namespace lockstep::optest::primitives
