#include "lockstep/engine/nn/layers/initializer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

struct Drawn {
  std::string initializer;
  Shape shape;
  int64_t fan_in = 1, fan_out = 1;
  uint64_t seed = 1;
  std::string name = "layer.weights";

  std::vector<float> operator()() const {
    Tensor tensor(shape, DType::f32);
    initialize(tensor, {"weights", shape, initializer, fan_in, fan_out, 1, 1}, seed, name);
    return tensor.to_vector();
  }
};

struct Moments {
  double mean = 0, variance = 0;
};

Moments moments_of(const std::vector<float>& values) {
  Moments m;
  const auto n = static_cast<double>(values.size());
  for (float v : values) m.mean += static_cast<double>(v) / n;
  for (float v : values) {
    m.variance += (static_cast<double>(v) - m.mean) * (static_cast<double>(v) - m.mean) / n;
  }
  return m;
}

constexpr int64_t kMany = 40000;

// The mean of n values lies within 5 / sqrt(n) deviations, their variance within 5 sqrt(2 / n).
void expect_moments(const std::vector<float>& values, double variance) {
  const Moments m = moments_of(values);
  const auto n = static_cast<double>(values.size());
  EXPECT_NEAR(m.mean, 0, 5 * std::sqrt(variance / n));
  EXPECT_NEAR(m.variance / variance, 1, 5 * std::sqrt(2 / n));
}

TEST(Initializer, GlorotIsUniformWithinItsBound) {
  const auto values = Drawn{"glorot", {kMany}, 27, 144}();
  const double bound = std::sqrt(6.0 / (27 + 144));
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  EXPECT_GE(*low, static_cast<float>(-bound));
  EXPECT_LE(*high, static_cast<float>(bound));
  EXPECT_LT(*low, -0.999 * bound) << "the whole range is used";
  EXPECT_GT(*high, 0.999 * bound);
  expect_moments(values, bound * bound / 3);
}

TEST(Initializer, HeIsNormalWithVarianceTwoOverFanIn) {
  const auto values = Drawn{"he", {kMany}, 50, 999}();
  expect_moments(values, 2.0 / 50);
  const double deviation = std::sqrt(2.0 / 50);
  const auto beyond = std::count_if(values.begin(), values.end(), [&](float v) {
    return std::abs(static_cast<double>(v)) > 2 * deviation;
  });
  EXPECT_NEAR(static_cast<double>(beyond) / kMany, 0.0455, 0.006) << "not normal";
}

TEST(Initializer, NarrowNormalHasDeviationOneHundredth) {
  expect_moments(Drawn{"narrow-normal", {kMany}, 7, 9}(), 1e-4);
}

TEST(Initializer, OrthogonalHasOrthonormalRowsOrColumnsWhicheverAreFewer) {
  struct Case {
    Shape shape;
    int64_t rows, columns;
  };
  for (const auto& c : {Case{{8, 20}, 8, 20}, Case{{20, 8}, 20, 8}, Case{{12, 12}, 12, 12},
                        Case{{16, 4, 3, 3}, 16, 36}, Case{{40, 3, 3, 3}, 40, 27},
                        Case{{1, 5}, 1, 5}, Case{{5}, 5, 1}}) {
    const auto q = Drawn{"orthogonal", c.shape}();
    const bool tall = c.rows > c.columns;
    const int64_t vectors = std::min(c.rows, c.columns), length = std::max(c.rows, c.columns);
    const auto at = [&](int64_t vector, int64_t i) {
      const int64_t place = tall ? i * c.columns + vector : vector * c.columns + i;
      return static_cast<double>(q[static_cast<size_t>(place)]);
    };
    for (int64_t a = 0; a < vectors; ++a) {
      for (int64_t b = 0; b <= a; ++b) {
        double dot = 0;
        for (int64_t i = 0; i < length; ++i) dot += at(a, i) * at(b, i);
        EXPECT_NEAR(dot, a == b ? 1 : 0, 1e-6) << c.shape.to_string() << " " << a << " " << b;
      }
    }
  }
}

TEST(Initializer, ZerosAndOnesAreThat) {
  EXPECT_EQ((Drawn{"zeros", {100}}()), std::vector<float>(100, 0));
  EXPECT_EQ((Drawn{"ones", {100}}()), std::vector<float>(100, 1));
}

TEST(Initializer, ValuesDependOnSeedAndNameOnly) {
  for (const std::string kind : {"glorot", "he", "narrow-normal", "orthogonal"}) {
    SCOPED_TRACE(kind);
    const Drawn base{kind, {6, 10}, 10, 6};
    EXPECT_EQ(base(), base());
    Drawn other = base;
    other.seed = 2;
    EXPECT_NE(base(), other());
    other = base;
    other.name = "layer.weights2";
    EXPECT_NE(base(), other());
    const auto values = base();
    ASSERT_GT(values.size(), 1u);
    for (size_t i = 1; i < values.size(); ++i) EXPECT_NE(values[i], values[i - 1]) << i;
  }
}

TEST(Initializer, AnElementDoesNotDependOnHowManyThereAre) {
  for (const std::string kind : {"glorot", "he", "narrow-normal"}) {
    const auto few = Drawn{kind, {10}, 4, 5}(), many = Drawn{kind, {3, 100}, 4, 5}();
    EXPECT_TRUE(std::equal(few.begin(), few.end(), many.begin())) << kind;
  }
}

TEST(Initializer, EveryNameIsKnownAndOthersAreRefusedWithTheNearest) {
  for (const auto& name : initializer_names()) EXPECT_NO_THROW((Drawn{name, {4, 4}}())) << name;
  try {
    Drawn{"glorrot", {4}, 1, 1, 1, "conv.weights"}();
    FAIL() << "nothing was thrown";
  } catch (const InvalidArgument& error) {
    EXPECT_EQ(std::string(error.what()).rfind("[conv.weights]", 0), 0u) << error.what();
    EXPECT_NE(error.hint().find("`glorot`"), std::string::npos) << error.hint();
  }
}

}  // namespace
}  // namespace lockstep
