// Elementary functions and activations beside the C library's in double, over all kinds of floats.
// With LOCKSTEP_ALL_CASES=1 over every 97th; tests/functions has all. Compiled as the library's
// activations are, so that loops are vectorized.
#include "lockstep/engine/kernels/elementwise/functions.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <string>
#include <vector>

#include "lockstep/engine/kernels/cpu/losses/row_sums.h"
#include "lockstep/engine/kernels/elementwise/activation_functions.h"
#include "tests/functions/cases.h"

namespace lockstep::kernels {
namespace {

using Loop = void (*)(const float* x, float* y, size_t n);
using Exact = double (*)(double x);

#if defined(LOCKSTEP_HAS_CLONES)
#define LOCKSTEP_FOR_V4 __attribute__((target("arch=x86-64-v4")))
#define LOCKSTEP_FOR_V3 __attribute__((target("arch=x86-64-v3")))
bool has_v4() { return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq"); }
bool has_v3() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }
#else
#define LOCKSTEP_FOR_V4
#define LOCKSTEP_FOR_V3
bool has_v4() { return false; }
bool has_v3() { return false; }
#endif

struct Function {
  const char* name;
  Loop plain, v3, v4;
  Exact exact;
  double most;  // units in the last place; 0: only the bits are compared
};

#define LOCKSTEP_LOOP(name, expression)           \
  void name(const float* x, float* y, size_t n) { \
    for (size_t i = 0; i < n; ++i) {              \
      const float at = x[i];                      \
      y[i] = expression;                          \
    }                                             \
  }
#define LOCKSTEP_LOOPS(name, expression, ...)          \
  LOCKSTEP_LOOP(name, expression)                      \
  LOCKSTEP_FOR_V3 LOCKSTEP_LOOP(name##_v3, expression) \
  LOCKSTEP_FOR_V4 LOCKSTEP_LOOP(name##_v4, expression)

namespace loops {
LOCKSTEP_FUNCTION_CASES(LOCKSTEP_LOOPS)
LOCKSTEP_MORE_FUNCTION_CASES(LOCKSTEP_LOOPS)
}  // namespace loops

const std::vector<Function>& functions() {
#define LOCKSTEP_ENTRY(name, expression, exact, most) \
  {#name, loops::name, loops::name##_v3, loops::name##_v4, [](double x) { return exact; }, most},
#define LOCKSTEP_ENTRY_OF_BITS(name, expression) \
  {#name, loops::name, loops::name##_v3, loops::name##_v4, nullptr, 0},
  static const std::vector<Function> all{LOCKSTEP_FUNCTION_CASES(LOCKSTEP_ENTRY)
                                             LOCKSTEP_MORE_FUNCTION_CASES(LOCKSTEP_ENTRY_OF_BITS)};
  return all;
}

// Calls visit(x) for blocks of floats, of all signs, exponents and kinds.
template <class Visit>
void for_all_floats(Visit visit) {
  const uint64_t step = std::getenv("LOCKSTEP_ALL_CASES") ? 97 : 9973;
  std::vector<float> x;
  for (uint64_t bits = 0; bits < uint64_t{1} << 32;) {
    x.clear();
    for (; x.size() < 4096 && bits < uint64_t{1} << 32; bits += step) {
      x.push_back(std::bit_cast<float>(static_cast<uint32_t>(bits)));
    }
    visit(x);
  }
  constexpr float inf = std::numeric_limits<float>::infinity(), nan = NAN;
  visit(
      std::vector<float>{0.0f, -0.0f, inf, -inf, nan, 1.0f, -1.0f, 88.8f, -104.0f, 3e38f, -3e38f});
}

TEST(ElementaryFunctions, AreLessThanOneUnitFromTheTrueValue) {
  for (const Function& f : functions()) {
    if (f.exact == nullptr) continue;
    double worst = 0;
    float where = 0;
    for_all_floats([&](const std::vector<float>& x) {
      std::vector<float> y(x.size());
      (has_v3() ? f.v3 : f.plain)(x.data(), y.data(), x.size());
      for (size_t i = 0; i < x.size(); ++i) {
        const double error = ulps(y[i], f.exact(x[i]));
        if (!(error > worst)) continue;
        worst = error;
        where = x[i];
      }
    });
    EXPECT_LE(worst, f.most) << f.name << " of " << where;
    RecordProperty(f.name, std::to_string(worst));
  }
}

TEST(ElementaryFunctions, HaveTheSameBitsOnEveryInstructionSet) {
  if (!has_v3()) GTEST_SKIP() << "this build or processor has one instruction set";
  const auto same = [](const std::vector<float>& a, const std::vector<float>& b) {
    for (size_t i = 0; i < a.size(); ++i) {
      const bool numbers = !std::isnan(a[i]) || !std::isnan(b[i]);  // which NaN is not promised
      if (numbers && std::bit_cast<uint32_t>(a[i]) != std::bit_cast<uint32_t>(b[i])) return false;
    }
    return true;
  };
  for (const Function& f : functions()) {
    for_all_floats([&](const std::vector<float>& x) {
      std::vector<float> plain(x.size()), v3(x.size()), v4(x.size());
      f.plain(x.data(), plain.data(), x.size());
      f.v3(x.data(), v3.data(), x.size());
      ASSERT_TRUE(same(plain, v3)) << f.name;
      if (!has_v4()) return;
      f.v4(x.data(), v4.data(), x.size());
      ASSERT_TRUE(same(plain, v4)) << f.name;
    });
  }
}

using Softmax = void (*)(const float* x, float* y, double* totals, int64_t rows, int64_t n);

#define LOCKSTEP_SOFTMAX(name)                                                                   \
  void name(const float* x, float* y, double* totals, int64_t rows, int64_t n) {                 \
    cpu::softmax_of_rows(                                                                        \
        x, y, rows, n,                                                                           \
        [=](int64_t first, int count, const cpu::RowSums& sums) __attribute__((always_inline)) { \
          for (int r = 0; r < count; ++r) totals[first + r] = sums.total[r];                     \
        });                                                                                      \
  }
LOCKSTEP_SOFTMAX(softmax_plain)
LOCKSTEP_FOR_V3 LOCKSTEP_SOFTMAX(softmax_v3) LOCKSTEP_FOR_V4 LOCKSTEP_SOFTMAX(softmax_v4)

    TEST(ElementaryFunctions, SoftmaxHasTheSameBitsOnEveryInstructionSetAndSideBySide) {
  constexpr int64_t rows = 19;
  for (const int64_t n : {1, 2, 7, 10, 15, 16, 17, 31, 63, 64, 65, 100, 1000, 1023}) {
    std::vector<float> x(static_cast<size_t>(rows * n));
    uint32_t state = 1;
    for (float& value : x) {
      state = state * 1664525u + 1013904223u;
      value = static_cast<float>(state >> 8) * 0x1p-19f - 16;
    }
    const auto run = [&](Softmax softmax) {
      std::pair<std::vector<float>, std::vector<double>> found{x.size(), rows};
      softmax(x.data(), found.first.data(), found.second.data(), rows, n);
      return found;
    };
    const auto plain = run(softmax_plain);
    EXPECT_TRUE(!has_v3() || run(softmax_v3) == plain) << n;
    EXPECT_TRUE(!has_v4() || run(softmax_v4) == plain) << n;
    // Rows with few classes were side by side, others were not; the sums are the same.
    for (int64_t r = 0; r < rows; ++r) {
      std::vector<float> y(static_cast<size_t>(n));
      cpu::RowSums row, tile;
      cpu::exponentials_of_row(x.data() + r * n, y.data(), n, row);
      cpu::exponentials_of_rows(x.data() + r * n, y.data(), n, 1, 1, tile);
      EXPECT_EQ(row.total[0], plain.second[static_cast<size_t>(r)]) << n;
      EXPECT_EQ(tile.total[0], row.total[0]) << n;
    }
  }
}

// What sums of losses use.
TEST(ElementaryFunctions, LogarithmsInDoubleHaveTwelveDigits) {
  for (int i = 0; i <= 1000; ++i) {
    const double x = std::pow(10.0, -30.0 * i / 1000);
    EXPECT_LE(std::fabs(in_double::logarithm_of_1_plus_share(x) / std::log1p(x) - 1), 1e-11) << x;
    EXPECT_LE(std::fabs(in_double::logarithm_of_1_plus(x) / std::log1p(x) - 1), 1e-12) << x;
    EXPECT_LE(std::fabs(in_double::logarithm(1 / x + 1) / std::log(1 / x + 1) - 1), 1e-12) << x;
  }
  EXPECT_EQ(in_double::logarithm_of_1_plus_share(0), 0);
}

// Every pair of special floats, and pairs whose power is a finite float.
TEST(ElementaryFunctions, PowersHaveTheErrorsLimitsAndSignsOfIeee754) {
  constexpr float inf = std::numeric_limits<float>::infinity(), tiny = 1e-45f;
  const std::vector<float> special{
      0.0f,  -0.0f, inf,   -inf, NAN,   1.0f,  -1.0f,       0.5f,         -0.5f,       2.0f,
      -2.0f, 3.0f,  -3.0f, tiny, -tiny, 1e30f, 16777215.0f, -16777215.0f, 33554432.0f, 2.5f};
  const auto check = [](float x, float y) {
    const float found = power(x, y);
    const double exact = std::pow(double{x}, double{y});
    EXPECT_LE(ulps(found, exact), 0.501) << x << ", " << y;
    EXPECT_TRUE(found != 0 || std::signbit(found) == std::signbit(exact)) << x << ", " << y;
  };
  for (const float x : special) {
    for (const float y : special) check(x, y);
  }
  uint32_t state = 1;
  const auto next = [&state] { return state = state * 1664525u + 1013904223u; };
  for (int i = 0; i < 200000; ++i) {
    const float x = std::bit_cast<float>(next() >> 1);
    if (!std::isfinite(x) || x == 0) continue;
    const float most = 150 / std::max(0.01f, std::fabs(std::log2(x)));
    check(x, most * (static_cast<float>(next() >> 8) * 0x1p-23f - 1));
  }
}

TEST(ElementaryFunctions, ZerosKeepTheirSigns) {
  for (const float x : {0.0f, -0.0f}) {
    for (const float y : {exponential_minus_1(x), logarithm_of_1_plus(x), hyperbolic_tangent(x),
                          error_function(x), sine(x), Gelu{}.value(x), Swish{}.value(x)}) {
      EXPECT_EQ(y, 0);
      EXPECT_EQ(std::signbit(y), std::signbit(x));
    }
  }
}

TEST(ElementaryFunctions, SlopesAreRightEverywhere) {
  const auto slope_of_gelu = [](double x) {
    return exact_share(x) + x * 0.39894228040143267794 * std::exp(-0.5 * x * x);
  };
  const auto slope_of_swish = [](double x) {
    return exact_sigmoid(x) + x * exact_sigmoid(x) * exact_sigmoid(-x);
  };
  constexpr float inf = std::numeric_limits<float>::infinity();
  for_all_floats([&](const std::vector<float>& all) {
    for (const float x : all) {
      if (!std::isfinite(x) || std::fabs(x) > 1e18f) continue;  // squares are finite
      ASSERT_NEAR(Gelu{}.slope(x), slope_of_gelu(x), 1e-7) << x;
      ASSERT_NEAR(Swish{}.slope(x), slope_of_swish(x), 1e-7) << x;
      ASSERT_NEAR(Sigmoid{}.slope(x), exact_sigmoid(x) * exact_sigmoid(-x), 3e-8) << x;
      ASSERT_NEAR(Elu{2}.slope(x), x > 0 ? 1 : 2 * std::exp(double{x}), 2e-7) << x;
    }
  });
  for (const auto& [x, limit] : {std::pair{-inf, 0.0f}, {inf, 1.0f}}) {
    EXPECT_EQ(Gelu{}.slope(x), limit);
    EXPECT_EQ(GeluTanh{}.slope(x), limit);
    EXPECT_EQ(Swish{}.slope(x), limit);
    EXPECT_EQ(Softplus{}.slope(x), limit);
    EXPECT_EQ(Tanh{}.slope(x), 0);
    EXPECT_EQ(Sigmoid{}.slope(x), 0);
  }
  EXPECT_TRUE(std::isnan(Gelu{}.slope(NAN)) && std::isnan(Swish{}.slope(NAN)));
}

}  // namespace
}  // namespace lockstep::kernels
