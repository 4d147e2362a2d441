// Numbers at equal distances, and triangles of matrices.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "lockstep/engine/ops/ops.h"
#include "tests/engine/ops/harness.h"

namespace lockstep::optest::ranges {
namespace {

using Floats = std::vector<float>;

TEST(Arange, IsThatOfNumpy) {
  for (const Device device : devices()) {
    const Tensor like = Tensor::scalar(0).to(device);
    const auto numbers = [&](double start, double stop, double step) {
      const Tensor y = ops::arange(like, start, stop, step);
      EXPECT_EQ(y.device(), device);
      return y.to_vector();
    };
    EXPECT_EQ(numbers(0, 5, 1), (Floats{0, 1, 2, 3, 4}));
    EXPECT_EQ(numbers(3, -1, -1.5), (Floats{3, 1.5f, 0}));
    EXPECT_EQ(numbers(1, 1, 1), Floats());
    EXPECT_EQ(numbers(2, 1, 1), Floats());
    EXPECT_EQ(numbers(0, 1e-3, 7), Floats{0});
    const Floats fine = numbers(-1, 1, 0.1);
    ASSERT_EQ(fine.size(), 20u);
    for (size_t i = 0; i < fine.size(); ++i) {
      EXPECT_EQ(fine[i], static_cast<float>(std::fma(static_cast<double>(i), 0.1, -1)));
    }
    EXPECT_EQ(ops::linspace(like, 2, 7, 1).to_vector(), Floats{2});
    EXPECT_EQ(ops::linspace(like, 2, 7, 0).shape(), Shape{0});
    for (const int64_t count : {2, 3, 10, 1000}) {
      const Floats y = ops::linspace(like, -0.1, 0.1, count).to_vector();
      ASSERT_EQ(y.size(), static_cast<size_t>(count));
      EXPECT_EQ(y.front(), -0.1f);
      EXPECT_EQ(y.back(), 0.1f);
      for (size_t i = 0; i < y.size(); ++i) EXPECT_EQ(y[i], -y[y.size() - 1 - i]);  // symmetrical
    }
  }
  EXPECT_EQ(ops::arange(0, 3).to_vector(), (Floats{0, 1, 2}));
  EXPECT_EQ(ops::linspace(0, 1, 3).to_vector(), (Floats{0, 0.5f, 1}));
}

TEST(Arange, RefusesWhatHasNoNumbers) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  expect_refusal([&] { ops::arange(0, 5, 0); }, {"[arange]", "from 0 to 5", "step of 0"});
  expect_refusal([&] { ops::arange(0, nan); }, {"[arange]", "nan"});
  expect_refusal([&] { ops::arange(0, infinity); }, {"[arange]", "inf"});
  expect_refusal([&] { ops::arange(0, 1, 1e-300); }, {"[arange]", "numbers are more than"});
  expect_refusal([&] { ops::linspace(0, 1, -1); }, {"[linspace]", "-1 numbers"});
  expect_refusal([&] { ops::linspace(nan, 1, 2); }, {"[linspace]", "from nan"});
}

TEST(Triangles, AreThoseOfTheLastTwoAxes) {
  for (const Device device : devices()) {
    for (const std::vector<int64_t>& dims : std::vector<std::vector<int64_t>>{
             {1, 1}, {4, 4}, {3, 5}, {5, 3}, {2, 3, 4}, {2, 1, 3, 2}, {0, 3}, {3, 0}, {2, 0, 0}}) {
      const Array values = random_array(dims, 5);
      const Tensor x = tensor_of(values).to(device);
      const int64_t columns = dims.back(), rows = dims[dims.size() - 2];
      for (const int64_t k : {-2, -1, 0, 1, 3}) {
        for (const bool upper : {false, true}) {
          SCOPED_TRACE(Shape(dims).to_string() + " " + std::to_string(k));
          Tape tape;
          tape.watch(x);
          const Tensor y = upper ? ops::triu(x, k) : ops::tril(x, k);
          const Floats found = y.to_vector();
          const Tensor dx = tape.gradient(ops::sum(ops::square(y)), {x}, {.create_graph = true})[0];
          const Floats first = dx.to_vector();
          const Floats second = tape.gradient(ops::sum(dx), {x})[0].to_vector();
          ASSERT_EQ(y.shape(), Shape(dims));
          for (int64_t i = 0; i < values.count(); ++i) {
            const int64_t to = i % columns - i / columns % rows;
            const float kept = (upper ? to >= k : to <= k) ? 1 : 0;
            const auto at = static_cast<size_t>(i);
            EXPECT_EQ(found[at], kept * static_cast<float>(values[i]));
            EXPECT_EQ(first[at], 2 * found[at]);
            EXPECT_EQ(second[at], 2 * kept);
          }
        }
      }
    }
  }
  // What is left out does not reach the result.
  const Tensor x = Tensor::from(Floats{1, NAN, 2, 3}, {2, 2});
  EXPECT_EQ(ops::tril(x).to_vector(), (Floats{1, 0, 2, 3}));
  expect_refusal([&] { ops::tril(Tensor::zeros({3})); }, {"[tril]", "matrices", "received 3"});
}

}  // namespace
}  // namespace lockstep::optest::ranges
