// Losses that are made of other ops: values, gradients and second derivatives beside loops in fp64,
// and where PyTorch's formulas need care its fp64 figures.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "lockstep/base/error.h"
#include "lockstep/engine/ops/ops.h"
#include "tests/engine/ops/harness.h"

namespace lockstep::optest::made_losses {
namespace {

using Row = std::vector<double>;
using Ours = std::function<Tensor(const Tensor&, const Tensor&)>;
// The loss of one observation.
using Reference = std::function<double(const Row& x, const Row& t)>;

double mean_over(const Row& x, const Row& t, const std::function<double(double, double)>& each) {
  double sum = 0;
  for (size_t i = 0; i < x.size(); ++i) sum += each(x[i], t[i]);
  return sum / static_cast<double>(x.size());
}

double huber_of(double d, double delta) {
  return std::abs(d) <= delta ? d * d / 2 : delta * (std::abs(d) - delta / 2);
}

double cosine_of(const Row& a, const Row& b) {
  double ab = 0, aa = 0, bb = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    ab += a[i] * b[i];
    aa += a[i] * a[i];
    bb += b[i] * b[i];
  }
  return ab / std::sqrt(aa * bb);
}

struct Loss {
  const char* name;
  Ours ours;
  Reference reference;
  double x_low, x_high, t_low, t_high;
};

// No argument comes near a kink: the step of the differences is 1e-4 and the ranges leave |d| and
// margins a distance from it, or the kink does not matter (d of huber has a smooth first slope).
std::vector<Loss> losses() {
  return {
      {"l1", [](auto& x, auto& t) { return ops::l1(x, t); },
       [](const Row& x, const Row& t) {
         return mean_over(x, t, [](double a, double b) { return std::abs(a - b); });
       },
       1, 2, -2, 0.9},
      {"huber within", [](auto& x, auto& t) { return ops::huber(x, t, 3); },
       [](const Row& x, const Row& t) {
         return mean_over(x, t, [](double a, double b) { return huber_of(a - b, 3); });
       },
       -1, 1, -1, 1},
      {"huber outside", [](auto& x, auto& t) { return ops::huber(x, t, 0.3); },
       [](const Row& x, const Row& t) {
         return mean_over(x, t, [](double a, double b) { return huber_of(a - b, 0.3); });
       },
       -3, -1, -0.5, 1},
      {"smooth_l1 within", [](auto& x, auto& t) { return ops::smooth_l1(x, t, 4); },
       [](const Row& x, const Row& t) {
         return mean_over(x, t, [](double a, double b) { return huber_of(a - b, 4) / 4; });
       },
       -1, 1, -1, 1},
      {"smooth_l1 outside", [](auto& x, auto& t) { return ops::smooth_l1(x, t, 0.3); },
       [](const Row& x, const Row& t) {
         return mean_over(x, t, [](double a, double b) { return huber_of(a - b, 0.3) / 0.3; });
       },
       -3, -1, -0.5, 1},
      {"smooth_l1 of 0", [](auto& x, auto& t) { return ops::smooth_l1(x, t, 0); },
       [](const Row& x, const Row& t) {
         return mean_over(x, t, [](double a, double b) { return std::abs(a - b); });
       },
       -3, -1, -0.5, 1},
      {"hinge within", [](auto& x, auto& t) { return ops::hinge(x, t); },
       [](const Row& x, const Row& t) {
         return mean_over(x, t, [](double a, double b) { return std::max(0.0, 1 - a * b); });
       },
       -1, 1, -0.9, 0.9},
      {"hinge outside", [](auto& x, auto& t) { return ops::hinge(x, t, 0.5); },
       [](const Row& x, const Row& t) {
         return mean_over(x, t, [](double a, double b) { return std::max(0.0, 0.5 - a * b); });
       },
       1, 2, 0.6, 2},
      {"cosine_similarity", [](auto& x, auto& t) { return ops::cosine_similarity(x, t); },
       cosine_of, 0.5, 2, -1, 2},
      {"binary_cross_entropy", [](auto& x, auto& t) { return ops::binary_cross_entropy(x, t); },
       [](const Row& x, const Row& t) {
         return mean_over(x, t, [](double p, double y) {
           return -(y * std::log(p) + (1 - y) * std::log(1 - p));
         });
       },
       0.05, 0.95, 0, 1},
      {"binary_cross_entropy_with_logits",
       [](auto& x, auto& t) { return ops::binary_cross_entropy_with_logits(x, t); },
       [](const Row& x, const Row& t) {
         return mean_over(x, t, [](double a, double y) {
           const double p = 1 / (1 + std::exp(-a));
           return -(y * std::log(p) + (1 - y) * std::log(1 - p));
         });
       },
       -4, 4, 0, 1},
      {"kl_div", [](auto& x, auto& t) { return ops::kl_div(x, t); },
       [](const Row& x, const Row& t) {
         return mean_over(x, t, [](double a, double y) { return y * (std::log(y) - a); }) *
                static_cast<double>(x.size());
       },
       -5, -0.1, 0.05, 0.9},
      // All classes, weighted, so that the gradient is not 0.
      {"log_softmax",
       [](auto& x, auto& t) {
         const Tensor rows = ops::flatten(x);
         return ops::sum(ops::log_softmax(rows, 1) * ops::flatten(t), {1});
       },
       [](const Row& x, const Row& t) {
         double sum = 0, loss = 0;
         for (const double a : x) sum += std::exp(a);
         for (size_t i = 0; i < x.size(); ++i) loss += t[i] * (x[i] - std::log(sum));
         return loss;
       },
       -3, 3, 0, 1},
  };
}

Row row_of(const Array& all, int64_t n) {
  const int64_t size = all.count() / all.dim(0);
  return {all.values.begin() + n * size, all.values.begin() + (n + 1) * size};
}

// The gradient of sum(weights * losses) with respect to x (0) or t (1), by central differences.
Array slope_of(const Loss& loss, const Array& x, const Array& t, const Array& weights, int which) {
  constexpr double h = 1e-4;
  Array slope(x.dims);
  const int64_t size = x.count() / x.dim(0);
  for (int64_t i = 0; i < x.count(); ++i) {
    const int64_t n = i / size, at = i % size;
    Row rows[2] = {row_of(x, n), row_of(t, n)};
    double& moved = rows[which][static_cast<size_t>(at)];
    const double middle = moved;
    moved = middle + h;
    const double above = loss.reference(rows[0], rows[1]);
    moved = middle - h;
    const double below = loss.reference(rows[0], rows[1]);
    slope[i] = weights[n] * (above - below) / (2 * h);
  }
  return slope;
}

// The change of slope_of(which) along a direction of x and t.
Array curvature_of(const Loss& loss, const Array& x, const Array& t, const Array& weights,
                   const Array& along_x, const Array& along_t, int which) {
  constexpr double h = 1e-3;
  Array x_above = x, x_below = x, t_above = t, t_below = t;
  for (int64_t i = 0; i < x.count(); ++i) {
    x_above[i] += h * along_x[i];
    x_below[i] -= h * along_x[i];
    t_above[i] += h * along_t[i];
    t_below[i] -= h * along_t[i];
  }
  Array above = slope_of(loss, x_above, t_above, weights, which);
  const Array below = slope_of(loss, x_below, t_below, weights, which);
  for (int64_t i = 0; i < above.count(); ++i) above[i] = (above[i] - below[i]) / (2 * h);
  return above;
}

TEST(MadeLosses, ValuesAndTwoDerivativesAreThoseOfFormulasInDoublePrecision) {
  for (const Device device : devices()) {
    for (const Loss& loss : losses()) {
      uint64_t seed = 0;
      for (const std::vector<int64_t>& dims :
           std::vector<std::vector<int64_t>>{{1, 1}, {3, 7}, {2, 3, 4, 5}, {5, 67}}) {
        SCOPED_TRACE(std::string(loss.name) + " " + Shape(dims).to_string() + " " +
                     name_of_device(device));
        const Array x = random_array(dims, ++seed, loss.x_low, loss.x_high);
        const Array t = random_array(dims, ++seed, loss.t_low, loss.t_high);
        const Array weights = random_array({dims[0]}, ++seed, 0.5, 2);
        const Tensor tx = tensor_of(x).to(device), tt = tensor_of(t).to(device);
        Tape tape;
        tape.watch(tx);
        tape.watch(tt);
        const Tensor y = loss.ours(tx, tt);
        ASSERT_EQ(y.shape(), Shape{dims[0]});
        Array expected({dims[0]});
        for (int64_t n = 0; n < dims[0]; ++n) {
          expected[n] = loss.reference(row_of(x, n), row_of(t, n));
        }
        EXPECT_LT(relative_error(array_of(y), expected, 1e-3), 3e-6);
        const auto first =
            tape.gradient(weighted_sum(y, weights), {tx, tt}, {.create_graph = true});
        const Array along_x = random_array(dims, ++seed), along_t = random_array(dims, ++seed);
        const Tensor along = weighted_sum(first[0], along_x) + weighted_sum(first[1], along_t);
        const auto second = tape.gradient(along, {tx, tt});
        for (int which = 0; which < 2; ++which) {
          const auto k = static_cast<size_t>(which);
          EXPECT_LT(relative_error(array_of(first[k]), slope_of(loss, x, t, weights, which), 0.05),
                    1e-5)
              << which;
          EXPECT_LT(
              relative_error(array_of(second[k]),
                             curvature_of(loss, x, t, weights, along_x, along_t, which), 1e-2),
              2e-4)
              << which;
        }
      }
    }
  }
}

struct Derivatives {
  std::vector<float> value, first, second;
};

// With respect to x, each observation one number.
Derivatives of_numbers(const Ours& loss, std::vector<float> x, std::vector<float> t) {
  const auto n = static_cast<int64_t>(x.size());
  const Tensor tx = Tensor::from(x, {n}), tt = Tensor::from(t, {n});
  Tape tape;
  tape.watch(tx);
  const Tensor y = loss(tx, tt);
  const Tensor dx = tape.gradient(ops::sum(y), {tx}, {.create_graph = true})[0];
  return {y.to_vector(), dx.to_vector(), tape.gradient(ops::sum(dx), {tx})[0].to_vector()};
}

void expect_near(const std::vector<float>& actual, const std::vector<double>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    const double most = 1e-30 + 2e-5 * std::abs(expected[i]);
    EXPECT_NEAR(static_cast<double>(actual[i]), expected[i], most) << i;
  }
}

// Figures of PyTorch 1.13 in fp64, but for the slope of a probability of 0 with target 0, which is
// 1 here and 0 there, and second derivatives of bounded logarithms, which are 0.
TEST(MadeLosses, TheirEdgesAreThoseOfPyTorch) {
  const auto cross = [](const Tensor& x, const Tensor& t) {
    return ops::binary_cross_entropy(x, t);
  };
  const Derivatives b = of_numbers(cross, {0, 1, 0, 1, 1e-13f, 0.25f}, {1, 0, 0, 1, 1, 0.5f});
  expect_near(b.value, {100, 100, 0, 0, 29.933606208922594, 0.8369882167858358});
  expect_near(b.first, {-1e12, 1e12, 1, -1, -1e12, -4.0 / 3});
  EXPECT_NEAR(b.second[5], 80.0 / 9, 1e-4);

  const auto logits = [](const Tensor& x, const Tensor& t) {
    return ops::binary_cross_entropy_with_logits(x, t);
  };
  const Derivatives l = of_numbers(logits, {0, 0, 50, -50, 200, -50}, {1, 0.25f, 1, 1, 0, 0});
  // Of right logits nothing cancels, for both labels. PyTorch has 0 for the last one.
  const double rest = 1.928749847963918e-22;
  expect_near(l.value, {std::log(2), std::log(2), rest, 50, 200, rest});
  expect_near(l.first, {-0.5, 0.25, -rest, -1, 1, rest});
  expect_near({l.second[0], l.second[1], l.second[2], l.second[5]}, {0.25, 0.25, rest, rest});

  const auto huber = [](const Tensor& x, const Tensor& t) { return ops::huber(x, t, 0.5); };
  const std::vector<float> d{0, 0.5f, -0.5f, 3, 0.25f, -1e20f}, none(6, 0.0f);
  const Derivatives h = of_numbers(huber, d, none);
  expect_near(h.value, {0, 0.125, 0.125, 1.375, 0.03125, 5e19});
  expect_near(h.first, {0, 0.5, -0.5, 0.5, 0.25, -0.5});
  expect_near({h.second[0], h.second[3], h.second[4], h.second[5]}, {1, 0, 1, 0});

  const auto smooth = [](const Tensor& x, const Tensor& t) { return ops::smooth_l1(x, t, 0.5); };
  const Derivatives s = of_numbers(smooth, d, none);
  expect_near(s.value, {0, 0.25, 0.25, 2.75, 0.0625, 1e20});
  expect_near(s.first, {0, 1, -1, 1, 0.5, -1});

  const auto kl = [](const Tensor& x, const Tensor& t) { return ops::kl_div(x, t); };
  const float low = -std::numeric_limits<float>::infinity();
  const Derivatives k = of_numbers(kl, {-1, -2, -3, -300, low}, {0, 0.5f, 0.25f, 0.25f, 0});
  expect_near(k.value, {0, 0.6534264097200273, 0.40342640972002736, 74.65342640972003, 0});
  expect_near(k.first, {0, -0.5, -0.25, -0.25, 0});

  // By the target: log(target) + 1 - log_probability, and 0 for a target of 0.
  const Tensor logs = Tensor::from(std::vector<float>{-1, low}, {1, 2});
  const Tensor shares = Tensor::from(std::vector<float>{1, 0}, {1, 2});
  Tape of_target;
  of_target.watch(shares);
  expect_near(of_target.gradient(ops::sum(ops::kl_div(logs, shares)), {shares})[0].to_vector(),
              {2, 0});

  const Tensor zero = Tensor::from(std::vector<float>{0, 0}, {1, 2});
  const Tensor other = Tensor::from(std::vector<float>{1, 2}, {1, 2});
  Tape tape;
  tape.watch(zero);
  const Tensor cosine = ops::cosine_similarity(zero, other);
  EXPECT_EQ(cosine.to_vector(), std::vector<float>{0});
  expect_near(tape.gradient(ops::sum(cosine), {zero})[0].to_vector(),
              {44721359.549995795, 89442719.09999159});

  const Tensor far = Tensor::from(std::vector<float>{0, 200, -3}, {1, 3});
  expect_near(ops::log_softmax(far, 1).to_vector(), {-200, 0, -203});
}

TEST(MadeLosses, NotANumberIsNeverLost) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const Loss& loss : losses()) {
    for (const auto& [a, b] : {std::pair(nan, 0.5f), std::pair(0.5f, nan)}) {
      const Tensor x = Tensor::from(std::vector<float>{0.5f, a, 0.5f, 0.25f}, {2, 2});
      const Tensor t = Tensor::from(std::vector<float>{0.5f, b, 0.5f, 0.75f}, {2, 2});
      const std::vector<float> y = loss.ours(x, t).to_vector();
      EXPECT_TRUE(std::isnan(y[0])) << loss.name;
      EXPECT_FALSE(std::isnan(y[1])) << loss.name << ": of another observation";
    }
  }
  const Tensor x = Tensor::from(std::vector<float>{nan, -5, 0.5f, 5}, {4});
  const std::vector<float> clipped = ops::clip(x, -1, 2).to_vector();
  EXPECT_TRUE(std::isnan(clipped[0]));
  EXPECT_EQ((std::vector<float>(clipped.begin() + 1, clipped.end())),
            (std::vector<float>{-1, 0.5f, 2}));
}

TEST(MadeLosses, RefuseWhatDoesNotFit) {
  const Tensor x = Tensor::full({2, 3}, 0.5f), row = Tensor::full({3}, 0.5f);
  const Tensor empty(Shape{2, 0}, DType::f32), scalar = Tensor::scalar(1);
  const std::string pair = "expected prediction and target of one shape n x ..., received ";
  EXPECT_EQ(refusal_of([&] { ops::huber(x, row); }), "[huber] " + pair + "2x3 and 3");
  EXPECT_EQ(refusal_of([&] { ops::l1(empty, empty); }), "[l1] " + pair + "2x0 and 2x0");
  EXPECT_EQ(refusal_of([&] { ops::hinge(scalar, scalar); }),
            "[hinge] " + pair + scalar.shape().to_string() + " and " + scalar.shape().to_string());
  for (const auto& call : std::vector<std::function<void()>>{
           [&] { ops::smooth_l1(x, row); }, [&] { ops::cosine_similarity(x, row); },
           [&] { ops::binary_cross_entropy(x, row); }, [&] { ops::kl_div(x, row); },
           [&] { ops::binary_cross_entropy_with_logits(x, row); }}) {
    EXPECT_NE(refusal_of(call).find(pair + "2x3 and 3"), std::string::npos) << refusal_of(call);
  }
  EXPECT_EQ(refusal_of([&] { ops::huber(x, x, 0); }), "[huber] delta must be above 0, received 0");
  // Numbers that are 0 as floats.
  EXPECT_EQ(refusal_of([&] { ops::huber(x, x, 1e-50); }),
            "[huber] delta must be above 0, received 1e-50");
  EXPECT_EQ(refusal_of([&] { ops::cosine_similarity(x, x, 1e-30); }),
            "[cosine_similarity] epsilon must be above 0, received 1e-30");
  EXPECT_EQ(ops::smooth_l1(x, x, 1e-50).to_vector(), ops::l1(x, x).to_vector());
  EXPECT_EQ(refusal_of([&] { ops::smooth_l1(x, x, -0.5); }),
            "[smooth_l1] beta must be 0 or above, received -0.5");
  EXPECT_EQ(refusal_of([&] { ops::cosine_similarity(x, x, std::nan("")); }),
            "[cosine_similarity] epsilon must be above 0, received nan");
}

}  // namespace
}  // namespace lockstep::optest::made_losses
