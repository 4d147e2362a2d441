// Functions of the steps of sequences beside fp64, their derivatives, and that room at the end of a
// sequence changes no bit.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "lockstep/base/error.h"
#include "lockstep/engine/ops/ops.h"
#include "tests/engine/ops/harness.h"

namespace lockstep::optest::steps {
namespace {

using Function = std::function<Tensor(const Tensor&)>;

// The gradient of a weighted sum, and of the sum of the gradient's cubes.
struct Derivatives {
  Tensor y, first, second;
};
Derivatives derivatives_of(const Function& f, const Tensor& x) {
  Tape tape;
  tape.watch(x);
  const Tensor y = f(x);
  const Tensor weights = tensor_of(random_array(y.shape().dims(), 5));
  const Tensor first = tape.gradient(ops::sum(y * y * weights), {x}, {.create_graph = true})[0];
  return {y, first, tape.gradient(ops::sum(first * first * first), {x})[0]};
}

// Central differences of the function in steps of f32.
void expect_derivatives(const Function& f, const Array& x) {
  const Derivatives found = derivatives_of(f, tensor_of(x));
  const Array direction = random_array(x.dims, 6);
  constexpr double h = 1e-2;
  const auto moved = [&](double by) {
    Array there = x;
    for (int64_t i = 0; i < x.count(); ++i) there[i] += by * direction[i];
    return tensor_of(there);
  };
  const Array weights = random_array(found.y.shape().dims(), 5);
  const auto total = [&](const Tensor& at) {
    const Array y = array_of(f(at));
    double sum = 0;
    for (int64_t i = 0; i < y.count(); ++i) sum += y[i] * y[i] * weights[i];
    return sum;
  };
  const auto cubes = [&](const Tensor& at) {
    const Array slopes = array_of(derivatives_of(f, at).first);
    double sum = 0;
    for (const double slope : slopes.values) sum += slope * slope * slope;
    return sum;
  };
  const auto along = [&](const Tensor& gradient) {
    const Array g = array_of(gradient);
    double sum = 0;
    for (int64_t i = 0; i < g.count(); ++i) sum += g[i] * direction[i];
    return sum;
  };
  const double first = (total(moved(h)) - total(moved(-h))) / (2 * h);
  EXPECT_NEAR(along(found.first), first, 2e-3 * (1 + std::abs(first)));
  const double second = (cubes(moved(h)) - cubes(moved(-h))) / (2 * h);
  EXPECT_NEAR(along(found.second), second, 5e-3 * (1 + std::abs(second)));
}

Tensor of_lengths(const std::vector<int32_t>& lengths) {
  return Tensor::from(lengths, {static_cast<int64_t>(lengths.size())});
}

TEST(Steps, AMaskIsOneWhereStepsAreValid) {
  EXPECT_EQ(ops::step_mask(of_lengths({0, 2, 3}), 3).to_vector(),
            (std::vector<float>{0, 0, 0, 1, 1, 0, 1, 1, 1}));
}

TEST(Steps, LastAndMeanAreThoseOfValidSteps) {
  const Array x = random_array({4, 5, 3}, 1);
  const std::vector<int32_t> lengths{5, 0, 1, 3};
  const Array last = array_of(ops::last_step(tensor_of(x), of_lengths(lengths)));
  const Array mean = array_of(ops::mean_over_steps(tensor_of(x), of_lengths(lengths)));
  ASSERT_EQ(last.dims, (std::vector<int64_t>{4, 3}));
  ASSERT_EQ(mean.dims, (std::vector<int64_t>{4, 3}));
  for (int64_t i = 0; i < 4; ++i) {
    const int64_t length = lengths[static_cast<size_t>(i)];
    for (int64_t c = 0; c < 3; ++c) {
      double sum = 0;
      for (int64_t t = 0; t < length; ++t) sum += x[(i * 5 + t) * 3 + c];
      EXPECT_EQ(last[i * 3 + c], length == 0 ? 0 : x[(i * 5 + length - 1) * 3 + c]);
      EXPECT_NEAR(mean[i * 3 + c], length == 0 ? 0 : sum / static_cast<double>(length), 1e-7);
    }
  }
  for (const Function& f :
       {Function([&](const Tensor& t) { return ops::last_step(t, of_lengths(lengths)); }),
        Function([&](const Tensor& t) { return ops::mean_over_steps(t, of_lengths(lengths)); })}) {
    expect_derivatives(f, x);
  }
}

// Steps that are not valid hold NaN. More channels than lanes, one channel, and more steps than a
// block of sums.
TEST(Steps, RoomAtTheEndChangesNoBit) {
  const std::vector<int32_t> lengths{600, 0, 17, 256};
  for (const int64_t channels : {1, 3, 20}) {
    for (const bool last : {false, true}) {
      std::vector<std::vector<float>> results;
      for (const int64_t room : {600, 601, 4200}) {
        std::vector<float> all(static_cast<size_t>(4 * room * channels),
                               std::numeric_limits<float>::quiet_NaN());
        for (size_t i = 0; i < 4; ++i) {
          const Array values = random_array({lengths[i], channels}, i);
          std::copy(values.values.begin(), values.values.end(),
                    all.begin() + static_cast<std::ptrdiff_t>(i) * room * channels);
        }
        const Derivatives found = derivatives_of(
            [&](const Tensor& x) {
              return last ? ops::last_step(x, of_lengths(lengths))
                          : ops::mean_over_steps(x, of_lengths(lengths));
            },
            Tensor::from(all, {4, room, channels}));
        std::vector<float> result = found.y.to_vector();
        for (const Tensor& gradient : {found.first, found.second}) {
          const std::vector<float> slopes = gradient.to_vector();
          for (size_t i = 0; i < 4; ++i) {
            const auto row = slopes.begin() + static_cast<std::ptrdiff_t>(i) * room * channels;
            const auto end = row + lengths[i] * channels;
            result.insert(result.end(), row, end);
            EXPECT_TRUE(std::all_of(end, row + room * channels, [](float s) { return s == 0; }));
          }
        }
        results.push_back(result);
      }
      EXPECT_EQ(results[0], results[1]) << channels << " channels";
      EXPECT_EQ(results[0], results[2]) << channels << " channels";
    }
  }
}

TEST(RmsNorm, HasARootMeanSquareOfOne) {
  const Array x = random_array({3, 2, 33}, 7), scale = random_array({33}, 8);
  const Tensor y = ops::rms_norm(tensor_of(x), tensor_of(scale), 1e-5);
  Array expected(x.dims);
  for (int64_t row = 0; row < 6; ++row) {
    double squares = 0;
    for (int64_t c = 0; c < 33; ++c) squares += x[row * 33 + c] * x[row * 33 + c];
    for (int64_t c = 0; c < 33; ++c) {
      expected[row * 33 + c] = x[row * 33 + c] / std::sqrt(squares / 33 + 1e-5) * scale[c];
    }
  }
  EXPECT_LE(relative_error(array_of(y), expected), 1e-6);
  expect_derivatives([&](const Tensor& t) { return ops::rms_norm(t, tensor_of(scale)); }, x);
}

Array rotated(const Array& x, const ops::RotaryParams& p) {
  Array y(x.dims);
  const int64_t size = x.dim(2) / p.heads, pairs = size / 2;
  for (int64_t step = 0; step < x.dim(0) * x.dim(1); ++step) {
    const auto position = static_cast<double>(p.first + step % x.dim(1));
    for (int64_t h = 0; h < p.heads; ++h) {
      for (int64_t i = 0; i < pairs; ++i) {
        const double angle =
            position * std::pow(p.base, -2.0 * static_cast<double>(i) / static_cast<double>(size));
        const int64_t head = step * x.dim(2) + h * size;
        const int64_t a = head + (p.interleaved ? 2 * i : i);
        const int64_t b = head + (p.interleaved ? 2 * i + 1 : i + pairs);
        y[a] = x[a] * std::cos(angle) - x[b] * std::sin(angle);
        y[b] = x[b] * std::cos(angle) + x[a] * std::sin(angle);
      }
    }
  }
  return y;
}

TEST(Rotary, RotatesPairsByTheirPositions) {
  const Array x = random_array({2, 19, 24}, 9);
  for (const ops::RotaryParams& p :
       {ops::RotaryParams{}, ops::RotaryParams{.heads = 3},
        ops::RotaryParams{.heads = 2, .base = 100, .first = 40},
        ops::RotaryParams{.heads = 4, .interleaved = true}, ops::RotaryParams{.heads = 12}}) {
    EXPECT_LE(relative_error(array_of(ops::rotary(tensor_of(x), p)), rotated(x, p)), 3e-6);
    expect_derivatives([&](const Tensor& t) { return ops::rotary(t, p); }, x);
  }
}

TEST(SinusoidalPositions, AreThoseOfTheTransformer) {
  for (const int64_t channels : {1, 6, 7}) {
    const Array found =
        array_of(ops::sinusoidal_positions(Tensor::zeros({1}), 50, channels, 10000));
    ASSERT_EQ(found.dims, (std::vector<int64_t>{50, channels}));
    for (int64_t t = 0; t < 50; ++t) {
      for (int64_t c = 0; c < channels; ++c) {
        const double exponent = static_cast<double>(c / 2 * 2) / static_cast<double>(channels);
        const double angle = static_cast<double>(t) / std::pow(10000, exponent);
        EXPECT_NEAR(found[t * channels + c], c % 2 == 0 ? std::sin(angle) : std::cos(angle), 1e-5);
      }
    }
  }
}

TEST(Steps, RefuseWhatDoesNotFit) {
  const Tensor x = Tensor::zeros({2, 3, 4}), lengths = of_lengths({3, 1});
  expect_refusal([&] { ops::step_mask(lengths, 0); }, {"[step_mask]", "received 2 and 0"});
  expect_refusal([&] { ops::step_mask(lengths, 2); }, {"[step_mask]", "length 3"});
  expect_refusal([&] { ops::last_step(x, of_lengths({4, 0})); }, {"[last_step]", "length 4"});
  expect_refusal([&] { ops::last_step(Tensor::zeros({2}), lengths); }, {"[last_step]", "n x t"});
  expect_refusal([&] { ops::mean_over_steps(x, of_lengths({1})); },
                 {"[mean_over_steps]", "2 i32", "1 i32"});
  expect_refusal([&] { ops::mean_over_steps(x, x); }, {"[mean_over_steps]", "2x3x4 f32"});
  expect_refusal([&] { ops::rms_norm(x, Tensor::zeros({3})); }, {"[rms_norm]", "2x3x4", "3"});
  expect_refusal([&] { ops::rms_norm(x, Tensor::zeros({4}), 0); }, {"[rms_norm]", "epsilon"});
  expect_refusal([&] { ops::rotary(x, {.heads = 4}); }, {"[rotary]", "4 heads", "2x3x4"});
  expect_refusal([&] { ops::rotary(x, {.base = 0}); }, {"[rotary]", "base"});
  expect_refusal([&] { ops::rotary(x, {.first = -1}); }, {"[rotary]", "-1"});
  expect_refusal([&] { ops::sinusoidal_positions(x, 0, 4); }, {"[sinusoidal_positions]", "0"});
}

}  // namespace
}  // namespace lockstep::optest::steps
