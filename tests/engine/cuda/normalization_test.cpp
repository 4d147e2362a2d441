// The CUDA back end's normalizations, run by the emulation and compared with the CPU's.
#include <gtest/gtest.h>

#include <cmath>

#include "lockstep/engine/kernels/cuda/cuda.h"
#include "lockstep/engine/kernels/normalization/batch_normalization.h"
#include "lockstep/engine/kernels/normalization/group_normalization.h"
#include "tests/engine/cuda/harness.h"

namespace lockstep::kernels::cudatest {
namespace {

Given with_statistics(int64_t channels) {
  std::vector<float> variance = normal(static_cast<size_t>(channels), 3);
  for (float& v : variance) v = std::abs(v) + 0.1f;
  return {{{Kind::input, 4}, bytes_of(variance)}};
}

TEST(CudaNormalization, BatchNormalization) {
  // Two observations alone would give gradients that are only rounding errors.
  for (const Shape& shape : std::vector<Shape>{{7, 5},
                                               {300, 3},
                                               {6, 70},
                                               {2, 3, 5, 7},
                                               {3, 33, 9, 4},
                                               {2, 1, 17, 3},
                                               {4, 40, 1, 1},
                                               {50, 264},  // more than 32 packs
                                               {3, 5, 2, 7, 4},
                                               {8, 16, 40, 40}}) {
    for (const bool training : {true, false}) {
      for (const bool relu : {true, false}) {
        SCOPED_TRACE(shape.to_string() + (training ? " training" : "") + (relu ? " relu" : ""));
        const BatchNormalizationProblem p{plain(shape), 1e-5, relu, training};
        const Given given = training ? Given{} : with_statistics(shape[1]);
        compare(cpu_table().batch_normalization(p), cuda::batch_normalization(p), 2e-5, given);
      }
    }
  }
}

// As the CPU's of x + bias.
TEST(CudaNormalization, BatchNormalizationAddsABias) {
  for (const Shape& shape : std::vector<Shape>{{7, 5}, {3, 33, 9, 4}, {6, 40, 3, 3}}) {
    for (const bool training : {true, false}) {
      SCOPED_TRACE(shape.to_string() + (training ? " training" : ""));
      const auto channels = static_cast<size_t>(shape[1]);
      const auto space =
          static_cast<size_t>(shape.elements()) / channels / static_cast<size_t>(shape[0]);
      std::vector<float> x = normal(static_cast<size_t>(shape.elements()), 7),
                         bias = normal(channels, 8), sum = x;
      for (float& b : bias) b = std::round(8 * b);  // so that x + bias is hardly rounded
      for (float& v : x) v = std::round(v * 1024) / 1024;
      for (size_t i = 0; i < x.size(); ++i) sum[i] = x[i] + bias[i / space % channels];
      Given given = training ? Given{} : with_statistics(shape[1]), added = given;
      const int last = training ? 3 : 5;
      given[{Kind::input, 0}] = bytes_of(x);
      given[{Kind::input, last}] = bytes_of(bias);
      added[{Kind::input, 0}] = bytes_of(sum);
      BatchNormalizationProblem p{plain(shape), 1e-5, true, training};
      const auto expected = run(cpu_table().batch_normalization(p), added);
      p.bias = true;
      auto results = run(cuda::batch_normalization(p), given);
      for (const auto& [key, bytes] : expected) {
        EXPECT_LE(difference(values_of(results.at(key)), values_of(bytes)), 2e-5)
            << static_cast<int>(key.first) << " " << key.second;
      }
      const auto gradient = values_of(results.at({Kind::diff_input, last}));
      if (training) {
        EXPECT_EQ(gradient, std::vector<float>(channels, 0));
        continue;
      }
      const auto dx = values_of(expected.at({Kind::diff_input, 0}));
      std::vector<float> sums(channels);
      for (size_t i = 0; i < dx.size(); ++i) sums[i / space % channels] += dx[i];
      EXPECT_LE(difference(gradient, sums), 2e-5);
    }
  }
}

// ReLU treats NaN and infinities as on the CPU.
TEST(CudaNormalization, BatchNormalizationOfSpecialValues) {
  for (const bool relu : {false, true}) {
    SCOPED_TRACE(relu);
    Given given = with_statistics(5);
    given.merge(with_special_values({7, 5}));
    const BatchNormalizationProblem p{plain({7, 5}), 1e-5, relu, false};
    compare(cpu_table().batch_normalization(p), cuda::batch_normalization(p), 2e-5, given);
  }
}

// The variance of numbers far from zero.
TEST(CudaNormalization, BatchNormalizationFarFromZero) {
  const Shape shape{16, 3, 9, 9};
  std::vector<float> x = normal(static_cast<size_t>(shape.elements()), 1);
  double mean = 0, variance = 0;  // of channel 0
  for (size_t i = 0; i < x.size(); ++i) x[i] = x[i] * 0.1f + 1000;
  for (size_t i = 0; i < x.size(); ++i) mean += i / 81 % 3 == 0 ? static_cast<double>(x[i]) : 0;
  mean /= 16 * 81;
  for (size_t i = 0; i < x.size(); ++i) {
    if (i / 81 % 3 == 0) variance += std::pow(static_cast<double>(x[i]) - mean, 2);
  }
  variance /= 16 * 81;
  auto results = run(cuda::batch_normalization({plain(shape)}), {{{Kind::input, 0}, bytes_of(x)}});
  EXPECT_NEAR(values_of(results[{Kind::output, 2}])[0], variance, 1e-6 * variance);
}

TEST(CudaNormalization, GroupNormalization) {
  const struct {
    Shape src;
    std::vector<int64_t> groups;
  } rows[] = {{{7, 5}, {1}},           {{300, 12}, {1, 3}},           {{6, 700}, {1, 7}},
              {{2, 3, 5, 7}, {1, 3}},  {{3, 33, 9, 4}, {1, 11, 33}},  {{2, 1, 17, 3}, {1}},
              {{4, 40, 1, 1}, {1, 4}}, {{2, 16, 40, 40}, {1, 4, 16}}, {{2, 6, 3, 4, 5}, {1, 3}}};
  for (const auto& row : rows) {
    for (const int64_t groups : row.groups) {
      SCOPED_TRACE(row.src.to_string() + " in " + std::to_string(groups));
      const GroupNormalizationProblem p{plain(row.src), groups};
      compare(cpu_table().group_normalization(p), cuda::group_normalization(p), 2e-5);
      // Far from zero.
      std::vector<float> x = normal(static_cast<size_t>(row.src.elements()), 1);
      for (float& v : x) v = v * 0.1f + 1000;
      compare(cpu_table().group_normalization(p), cuda::group_normalization(p), 2e-5,
              {{{Kind::input, 0}, bytes_of(x)}});
    }
  }
}

}  // namespace
}  // namespace lockstep::kernels::cudatest
