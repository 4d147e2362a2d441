// Functions that are made of others: statistics, comparisons, moves. Values and derivatives beside
// fp64, and what they refuse.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <numeric>

#include "lockstep/base/error.h"
#include "lockstep/engine/ops/ops.h"
#include "tests/engine/ops/harness.h"

namespace lockstep::optest::array_functions {
namespace {

using Dims = std::vector<int64_t>;
// Elements of an array by their index.
using At = std::function<double(const Dims& index)>;

Dims index_of(int64_t offset, const Dims& dims) {
  Dims index(dims.size());
  for (size_t a = dims.size(); a-- > 0; offset /= dims[a]) index[a] = offset % dims[a];
  return index;
}
int64_t offset_of(const Dims& index, const Dims& dims) {
  int64_t offset = 0;
  for (size_t a = 0; a < dims.size(); ++a) offset = offset * dims[a] + index[a];
  return offset;
}
Array array_from(const Dims& dims, const At& at) {
  Array array(dims);
  for (int64_t i = 0; i < array.count(); ++i) array[i] = at(index_of(i, dims));
  return array;
}

using Expected = std::function<Array(const Array&)>;

double weighted(const Array& y) {
  double sum = 0;
  const Array weights = random_array(y.dims, 91);
  for (int64_t i = 0; i < y.count(); ++i) sum += y[i] * weights[i];
  return sum;
}

// Compares a function of a tensor with its reference, and the gradient of a weighted sum with
// central differences of the reference. `second`: also the gradient of the gradient's square.
void check(const std::string& name, const Array& x, const std::function<Tensor(const Tensor&)>& f,
           const Expected& expected, bool gradient = true) {
  SCOPED_TRACE(name);
  const Tensor there = tensor_of(x);
  Tape tape;
  tape.watch({there});
  const Tensor y = f(there);
  const Array wanted = expected(x);
  ASSERT_EQ(y.shape().to_string(), shape_of(wanted).to_string());
  EXPECT_LE(relative_error(array_of(y), wanted), 2e-6);
  if (!gradient) return;
  const Tensor scalar = weighted_sum(y, random_array(wanted.dims, 91));
  const Array found = array_of(tape.gradient(scalar, {there})[0]);
  Array differences(x.dims);
  constexpr double h = 1e-5;
  for (int64_t i = 0; i < x.count(); ++i) {
    Array above = x, below = x;
    above[i] += h;
    below[i] -= h;
    differences[i] = (weighted(expected(above)) - weighted(expected(below))) / (2 * h);
  }
  EXPECT_LE(relative_error(found, differences), 2e-5);
}

// Results of `of` for the elements along axis 1 of an array of three axes.
Expected along_axis_1(const std::function<double(const std::vector<double>&)>& of,
                      bool keep = false) {
  return [=](const Array& x) {
    const Dims dims = keep ? Dims{x.dims[0], 1, x.dims[2]} : Dims{x.dims[0], x.dims[2]};
    return array_from(dims, [&](const Dims& at) {
      std::vector<double> elements;
      for (int64_t k = 0; k < x.dims[1]; ++k) {
        elements.push_back(x[offset_of({at[0], k, at.back()}, x.dims)]);
      }
      return of(elements);
    });
  };
}

double sum_of(const std::vector<double>& x) { return std::accumulate(x.begin(), x.end(), 0.0); }
double mean_of(const std::vector<double>& x) { return sum_of(x) / static_cast<double>(x.size()); }
double variance_of(const std::vector<double>& x, double correction) {
  double squares = 0;
  for (const double v : x) squares += (v - mean_of(x)) * (v - mean_of(x));
  return squares / (static_cast<double>(x.size()) - correction);
}
double log_sum_exp_of(const std::vector<double>& x) {
  double sum = 0;
  for (const double v : x) sum += std::exp(v);
  return std::log(sum);
}

TEST(ArrayFunctions, StatisticsAlongAxes) {
  const Array x = random_array({3, 5, 4}, 5, -2, 2);
  check(
      "var", x, [](const Tensor& t) { return ops::var(t, {1}); },
      along_axis_1([](const auto& v) { return variance_of(v, 0); }));
  check(
      "var of a sample", x, [](const Tensor& t) { return ops::var(t, {-2}, true, 1); },
      along_axis_1([](const auto& v) { return variance_of(v, 1); }, true));
  check(
      "std", x, [](const Tensor& t) { return ops::std(t, {1}); },
      along_axis_1([](const auto& v) { return std::sqrt(variance_of(v, 0)); }));
  check(
      "norm", x, [](const Tensor& t) { return ops::norm(t, {1}); }, along_axis_1([](const auto& v) {
        return std::sqrt(std::inner_product(v.begin(), v.end(), v.begin(), 0.0));
      }));
  check(
      "logsumexp", x, [](const Tensor& t) { return ops::logsumexp(t, {1}); },
      along_axis_1(log_sum_exp_of));
  check(
      "prod", x, [](const Tensor& t) { return ops::prod(t, {1}); }, along_axis_1([](const auto& v) {
        return std::accumulate(v.begin(), v.end(), 1.0, std::multiplies<>());
      }));
  const auto softmax_of = [](bool logarithm) {
    return [logarithm](const Array& a) {
      return array_from(a.dims, [&](const Dims& at) {
        std::vector<double> row;
        for (int64_t k = 0; k < a.dims[2]; ++k)
          row.push_back(a[offset_of({at[0], at[1], k}, a.dims)]);
        const double log_share = a[offset_of(at, a.dims)] - log_sum_exp_of(row);
        return logarithm ? log_share : std::exp(log_share);
      });
    };
  };
  check(
      "softmax", x, [](const Tensor& t) { return ops::softmax(t, -1); }, softmax_of(false));
  check(
      "log_softmax", x, [](const Tensor& t) { return ops::log_softmax(t, 2); }, softmax_of(true));
}

TEST(ArrayFunctions, LargeScoresAndZerosAreExact) {
  const Tensor large = Tensor::from(std::vector<float>{1000, 1001, -1000}, {1, 3});
  EXPECT_NEAR(ops::logsumexp(large, {1}).to_vector()[0], 1001.3132617, 1e-3);
  EXPECT_NEAR(ops::log_softmax(large, 1).to_vector()[2], -2001.3132617, 1e-3);
  constexpr float infinity = std::numeric_limits<float>::infinity();
  const Tensor nothing = Tensor::from(std::vector<float>{-infinity, -infinity}, {1, 2});
  EXPECT_EQ(ops::logsumexp(nothing, {1}).to_vector()[0], -infinity);

  const Tensor zeros = Tensor::zeros({2, 3});
  Tape tape;
  tape.watch({zeros});
  const Tensor lengths = ops::norm(zeros, {1});
  EXPECT_EQ(tape.gradient(ops::sum(lengths), {zeros})[0].to_vector(), std::vector<float>(6, 0));
}

// Also where elements are 0: the first derivative is the product of the others, and so on.
TEST(ArrayFunctions, DerivativesOfAProductWithZeros) {
  const Tensor x = Tensor::from(std::vector<float>{0, 2, 3, 0, 0, 5, 4, 1, 2}, {3, 3});
  Tape outer;
  outer.watch({x});
  const Tensor y = ops::prod(x, {1});
  EXPECT_EQ(y.to_vector(), (std::vector<float>{0, 0, 8}));
  const Tensor g = outer.gradient(ops::sum(y), {x}, {.create_graph = true})[0];
  EXPECT_EQ(g.to_vector(), (std::vector<float>{6, 0, 0, 0, 0, 0, 2, 8, 4}));
  // The sum of all second derivatives of a row by its elements: twice the sums of the others.
  const Tensor h = outer.gradient(ops::sum(g), {x})[0];
  EXPECT_EQ(h.to_vector(), (std::vector<float>{5, 3, 2, 5, 5, 0, 3, 6, 5}));
}

// The product is in the range of f32, and so are its derivatives; products of halves are not.
TEST(ArrayFunctions, DerivativesOfAProductDoNotOverflowInBetween) {
  const Tensor x = Tensor::from(
      std::vector<float>{1e30f, 1e30f, 1e-30f, 1e-30f, 1e-30f, 1e-30f, 1e30f, 1e30f}, {2, 4});
  for (const int axis : {0, 1}) {
    const Tensor given = axis == 1 ? x : ops::matrix_transpose(x);
    Tape tape;
    tape.watch({given});
    const Tensor y = ops::prod(given, {axis});
    const Tensor slope = tape.gradient(ops::sum(y), {given})[0];
    const std::vector<float> g = (axis == 1 ? slope : ops::matrix_transpose(slope)).to_vector();
    for (size_t i = 0; i < g.size(); ++i) {
      EXPECT_FLOAT_EQ(g[i], i < 2 || i > 5 ? 1e-30f : 1e30f) << i;
    }
  }
}

// A norm over one element is its size, whose second derivative is 0. PyTorch in fp64 has less than
// 1e-15 for it, squares and roots in f32 some 1e-8.
TEST(ArrayFunctions, ANormOverOneElementHasNoSecondDerivative) {
  const Tensor x = Tensor::from(std::vector<float>{0.3f, -1.7f, 0, 3e30f, -1e-30f}, {5, 1});
  for (const bool keep : {false, true}) {
    Tape tape;
    tape.watch({x});
    const Tensor y = ops::norm(x, {1}, keep);
    EXPECT_EQ(y.shape(), keep ? (Shape{5, 1}) : Shape{5});
    EXPECT_EQ(y.to_vector(), (std::vector<float>{0.3f, 1.7f, 0, 3e30f, 1e-30f}));
    const Tensor g = tape.gradient(ops::sum(y), {x}, {.create_graph = true})[0];
    EXPECT_EQ(g.to_vector(), (std::vector<float>{1, -1, 0, 1, -1}));
    EXPECT_EQ(tape.gradient(ops::sum(g * x), {x})[0].to_vector(), g.to_vector());
  }
}

TEST(ArrayFunctions, Moves) {
  const Array x = random_array({2, 3, 4}, 6);
  const auto element = [](const Array& a, const Dims& at) { return a[offset_of(at, a.dims)]; };
  check(
      "flip", x,
      [](const Tensor& t) {
        return ops::flip(t, {0, -1});
      },
      [&](const Array& a) {
        return array_from(a.dims, [&](const Dims& i) {
          return element(a, {1 - i[0], i[1], 3 - i[2]});
        });
      });
  for (const int64_t shift : {1, -1, 7, 0}) {
    check(
        "roll", x, [=](const Tensor& t) { return ops::roll(t, shift, 2); },
        [&](const Array& a) {
          return array_from(a.dims, [&](const Dims& i) {
            return element(a, {i[0], i[1], ((i[2] - shift) % 4 + 4) % 4});
          });
        });
  }
  check(
      "tile", x,
      [](const Tensor& t) {
        return ops::tile(t, {2, 1, 3});
      },
      [&](const Array& a) {
        return array_from({4, 3, 12}, [&](const Dims& i) {
          return element(a, {i[0] % 2, i[1], i[2] % 4});
        });
      });
  check(
      "tile with more axes", x,
      [](const Tensor& t) {
        return ops::tile(t, {2, 1, 1, 1});
      },
      [&](const Array& a) {
        return array_from({2, 2, 3, 4}, [&](const Dims& i) {
          return element(a, {i[1], i[2], i[3]});
        });
      });
  check(
      "squeeze", x, [](const Tensor& t) { return ops::squeeze(ops::expand_dims(t, -2), {2}); },
      [](const Array& a) { return a; });
  check(
      "stack", x,
      [](const Tensor& t) {
        return ops::stack(std::vector<Tensor>{t, t * 2}, -1);
      },
      [&](const Array& a) {
        return array_from({2, 3, 4, 2}, [&](const Dims& i) {
          return element(a, {i[0], i[1], i[2]}) * static_cast<double>(1 + i[3]);
        });
      });
  check(
      "split", x, [](const Tensor& t) { return ops::split(t, 2, -1)[1]; },
      [&](const Array& a) {
        return array_from({2, 3, 2}, [&](const Dims& i) {
          return element(a, {i[0], i[1], i[2] + 2});
        });
      });
  for (const auto& [mode, name] : {std::pair{ops::PadMode::constant, "constant"},
                                   {ops::PadMode::reflect, "reflect"},
                                   {ops::PadMode::edge, "edge"}}) {
    const auto padded_element = [&, mode = mode](const Array& a, Dims i) {
      for (size_t axis = 1; axis < 3; ++axis) {
        const int64_t size = a.dims[axis], before = axis == 1 ? 2 : 1;
        int64_t& at = i[axis];
        at -= before;
        if (at >= 0 && at < size) continue;
        if (mode == ops::PadMode::constant) return 7.0;
        at = mode == ops::PadMode::edge ? std::clamp<int64_t>(at, 0, size - 1)
             : at < 0                   ? -at
                                        : 2 * (size - 1) - at;
      }
      return element(a, i);
    };
    check(
        name, x,
        [mode = mode](const Tensor& t) {
          return ops::pad(t, {{}, {2, 1}, {1, 3}}, mode, 7);
        },
        [&](const Array& a) {
          return array_from({2, 6, 8}, [&](const Dims& i) { return padded_element(a, i); });
        });
  }
  for (const Dims& dims : {Dims{2, 3, 4}, Dims{2, 4, 3}, Dims{3, 3}, Dims{1, 1}, Dims{5, 1}}) {
    check(
        "diagonal", random_array(dims, 7), [](const Tensor& t) { return ops::diagonal(t); },
        [&](const Array& a) {
          Dims kept(a.dims.begin(), a.dims.end() - 2);
          kept.push_back(std::min(a.dims.back(), a.dims[a.dims.size() - 2]));
          return array_from(kept, [&](Dims i) {
            i.push_back(i.back());
            return element(a, i);
          });
        });
  }
}

TEST(ArrayFunctions, ComparisonsAndLogic) {
  constexpr float nan = std::numeric_limits<float>::quiet_NaN(),
                  infinity = std::numeric_limits<float>::infinity();
  using Floats = std::vector<float>;
  const Tensor a = Tensor::from(Floats{1, 2, nan, 0, infinity}, {5});
  const Tensor b = Tensor::from(Floats{2, 2, 1, nan, 0}, {5});
  EXPECT_EQ(ops::greater(a, b).to_vector(), (Floats{0, 0, 0, 0, 1}));
  EXPECT_EQ(ops::greater_equal(a, b).to_vector(), (Floats{0, 1, 0, 0, 1}));
  EXPECT_EQ(ops::not_equal(a, b).to_vector(), (Floats{1, 0, 1, 1, 1}));
  EXPECT_EQ(ops::not_equal(a, 2).to_vector(), (Floats{1, 0, 1, 1, 1}));
  EXPECT_EQ(ops::isnan(a).to_vector(), (Floats{0, 0, 1, 0, 0}));
  EXPECT_EQ(ops::isfinite(a).to_vector(), (Floats{1, 1, 0, 1, 0}));
  EXPECT_EQ(ops::logical_not(a).to_vector(), (Floats{0, 0, 0, 1, 0}));
  EXPECT_EQ(ops::logical_and(a, b).to_vector(), (Floats{1, 1, 1, 0, 0}));
  EXPECT_EQ(ops::logical_or(a, b).to_vector(), (Floats{1, 1, 1, 1, 1}));
  EXPECT_EQ(ops::logical_xor(a, b).to_vector(), (Floats{0, 0, 0, 1, 1}));
  EXPECT_EQ(ops::all(a, {0}).to_vector(), Floats{0});
  EXPECT_EQ(ops::any(a, {0}).to_vector(), Floats{1});
  EXPECT_EQ(ops::all(Tensor::zeros({0, 2}), {0}).to_vector(), (Floats{1, 1}));
  EXPECT_EQ(ops::any(Tensor::zeros({0, 2}), {0}).to_vector(), (Floats{0, 0}));
  EXPECT_EQ(ops::clip(b, 0.5, 1.5).to_vector()[0], 1.5f);
  EXPECT_TRUE(std::isnan(ops::clip(b, 0.5, 1.5).to_vector()[3]));

  const Tensor x = Tensor::from(Floats{-1, 0, 0.5, 1, 2}, {5});
  Tape tape;
  tape.watch({x});
  EXPECT_EQ(tape.gradient(ops::sum(ops::clip(x, 0, 1)), {x})[0].to_vector(),
            (Floats{0, 1, 1, 1, 0}));
}

TEST(ArrayFunctions, SayWhatTheyCannotDo) {
  const Tensor x = Tensor::zeros({2, 3, 4});
  const std::pair<std::function<void()>, std::string> cases[] = {
      {[&] { ops::var(x, {1}, false, 3); }, "[var] 3 elements along the axes of 2x3x4 are too few"},
      {[&] { ops::var(x, {3}); }, "[var] 2x3x4 has no axis 3"},
      {[&] { ops::std(x, {3}); }, "[std] 2x3x4 has no axis 3"},
      {[&] { ops::norm(x, {3}); }, "[norm] 2x3x4 has no axis 3"},
      {[&] { ops::any(x, {3}); }, "[any] 2x3x4 has no axis 3"},
      {[&] { ops::logsumexp(x, {3}); }, "[logsumexp] 2x3x4 has no axis 3"},
      {[&] {
         ops::log_softmax(Tensor::zeros({2, 0}), 1);
       },
       "[log_softmax] no elements along"},
      {[&] {
         ops::stack(std::vector<Tensor>{x, Tensor::zeros({2})});
       },
       "[stack] expected inputs of one shape, received 2x3x4 and 2"},
      {[&] { ops::clip(x, 2, 1); }, "[clip] expected limits in order"},
      {[&] { ops::expand_dims(x, 4); }, "[expand_dims] 2x3x4 cannot get an axis 4"},
      {[&] { ops::squeeze(x, {1}); }, "[squeeze] axis 1 of 2x3x4 has more than one element"},
      {[&] { ops::split(x, 2, 1); }, "[split] axis 1 of 2x3x4 cannot be split into 2 equal parts"},
      {[&] {
         ops::flip(x, {1, 1});
       },
       "[flip] an axis is named twice"},
      {[&] { ops::roll(x, 1, -4); }, "[roll] 2x3x4 has no axis -4"},
      {[&] { ops::tile(x, {-1}); }, "[tile] axis 2 cannot be repeated -1 times"},
      {[&] {
         ops::pad(x, {{-1, 0}});
       },
       "[pad] the widths of axis 0 must not be negative"},
      {[&] {
         ops::pad(x, {{2, 0}}, ops::PadMode::reflect);
       },
       "[pad] axis 0 of 2x3x4 is too short"},
      {[&] { ops::diagonal(Tensor::zeros({3})); }, "[diagonal] expected matrices, received 3"},
  };
  for (const auto& [call, text] : cases) EXPECT_EQ(refusal_of(call).substr(0, text.size()), text);
}

TEST(ArrayFunctions, RandomNumbersDependOnTheirPlaceAlone) {
  const RandomContext step{.seed = 5, .iteration = 9, .first_row = 0};
  const Tensor like = Tensor::zeros({64, 33, 5});
  for (const auto& draw : std::vector<std::function<Tensor(const Tensor&, const RandomContext&)>>{
           [](const Tensor&t, const RandomContext&s) { return ops::random_uniform(t, 3, s); },
           [](const Tensor&t, const RandomContext&s) { return ops::random_normal(t, 3, s); }}) {
    const std::vector<float> whole = draw(like, step).to_vector();
    std::vector<float> parts;
    for (int64_t first = 0; first < 64; first += 16) {
      RandomContext later = step;
      later.first_row = first;
      const std::vector<float> part = draw(Tensor::zeros({16, 33, 5}), later).to_vector();
      parts.insert(parts.end(), part.begin(), part.end());
    }
    EXPECT_EQ(parts, whole);
    RandomContext next = step;
    ++next.iteration;
    EXPECT_NE(draw(like, next).to_vector(), whole);
  }
  const std::vector<float> u = ops::random_uniform(like, 3, step).to_vector();
  EXPECT_GE(*std::min_element(u.begin(), u.end()), 0);
  EXPECT_LT(*std::max_element(u.begin(), u.end()), 1);
  const std::vector<double> uniform(u.begin(), u.end());
  EXPECT_NEAR(mean_of(uniform), 0.5, 0.015);
  EXPECT_NEAR(variance_of(uniform, 0), 1.0 / 12, 0.005);
  const std::vector<float> z = ops::random_normal(like, 3, step).to_vector();
  const std::vector<double> normal(z.begin(), z.end());
  EXPECT_NEAR(mean_of(normal), 0, 0.04);
  EXPECT_NEAR(variance_of(normal, 0), 1, 0.05);
  const Tensor p = Tensor::zeros(like.shape()) + 0.25;
  const std::vector<float> chosen = ops::random_bernoulli(p, 3, step).to_vector();
  EXPECT_NEAR(mean_of({chosen.begin(), chosen.end()}), 0.25, 0.02);
}

}  // namespace
}  // namespace lockstep::optest::array_functions
