// Single values that a comparison by norm would miss: NaN, ties, very large numbers, dropout's
// probabilities.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "lockstep/engine/graph/op.h"
#include "lockstep/engine/kernels/backends/table.h"
#include "lockstep/engine/ops/op_makers.h"
#include "tests/engine/ops/harness.h"

namespace lockstep {
namespace {

using optest::random_array;
using optest::tensor_of;

constexpr float nan = std::numeric_limits<float>::quiet_NaN();
constexpr float inf = std::numeric_limits<float>::infinity();

Tensor from(std::vector<float> values, const Shape& shape) {
  return Tensor::from(std::span<const float>(values), shape);
}
Tensor labels(std::vector<int32_t> values) {
  return Tensor::from(std::span<const int32_t>(values), Shape{static_cast<int64_t>(values.size())});
}

// Errors name an op by its type in brackets.
TEST(Ops, HaveTheNamesOfTheirFunctions) {
#define EXPECT_NAME(name, ...) EXPECT_EQ(ops::make_##name(__VA_ARGS__)->type(), #name)
  EXPECT_NAME(relu);
  EXPECT_NAME(clipped_relu, 1);
  EXPECT_NAME(leaky_relu, 0.1);
  EXPECT_NAME(elu, 1);
  EXPECT_NAME(gelu, ops::GeluApproximation::none);
  EXPECT_NAME(swish);
  EXPECT_NAME(tanh);
  EXPECT_NAME(sigmoid);
  EXPECT_NAME(softplus);
  EXPECT_NAME(add);
  EXPECT_NAME(multiply);
  EXPECT_NAME(dropout, 0.5, 1);
  EXPECT_NAME(fully_connected, true);
  EXPECT_NAME(matmul, false, false);
  EXPECT_NAME(convolution1d, {}, true);
  EXPECT_NAME(convolution2d, {}, true);
  EXPECT_NAME(convolution3d, {}, true);
  EXPECT_NAME(transposed_convolution2d, {}, true);
  EXPECT_NAME(max_pooling1d, {});
  EXPECT_NAME(max_pooling2d, {});
  EXPECT_NAME(max_pooling3d, {});
  EXPECT_NAME(average_pooling1d, {});
  EXPECT_NAME(average_pooling2d, {});
  EXPECT_NAME(average_pooling3d, {});
  EXPECT_NAME(global_average_pooling1d);
  EXPECT_NAME(global_average_pooling2d);
  EXPECT_NAME(global_average_pooling3d);
  EXPECT_NAME(batch_normalization, 1e-5, true);
  EXPECT_NAME(group_normalization, 1, 1e-5);
  EXPECT_NAME(normalize_images);
  EXPECT_NAME(attention, {}, false, false);
  EXPECT_NAME(sum);
  EXPECT_NAME(concat);
  EXPECT_NAME(flatten);
  EXPECT_NAME(reshape, Shape{1});
  EXPECT_NAME(softmax);
  EXPECT_NAME(cross_entropy);
  EXPECT_NAME(softmax_cross_entropy);
  EXPECT_NAME(mean_squared_error);
  EXPECT_NAME(ctc_loss, {});
#undef EXPECT_NAME
}

TEST(Relu, KeepsNanAndHasNoGradientAtZero) {
  const Tensor x = from({nan, -1, 0, -0.0f, 2, inf, -inf}, {7});
  Tape tape;
  tape.watch(x);
  const Tensor y = ops::relu(x);
  const auto values = y.to_vector();
  EXPECT_TRUE(std::isnan(values[0]));
  EXPECT_EQ(std::vector<float>(values.begin() + 1, values.end()),
            (std::vector<float>{0, 0, 0, 2, inf, 0}));
  EXPECT_EQ(tape.gradient(ops::sum(y), {x})[0].to_vector(),
            (std::vector<float>{0, 0, 0, 0, 1, 1, 0}));
}

// Same for bf16, which is computed on bits.
TEST(Relu, KeepsNanAndHasNoGradientAtZeroInBf16) {
  if (!kernels::table_for({}).bf16) GTEST_SKIP() << "no bf16 instructions";
  std::vector<float> values{nan, -nan, -1, 0, -0.0f, 2, inf, -inf, -0x1p-120f, 0x1p-120f};
  values.resize(70, -3);  // more than a vector holds
  const Tensor wide = from(values, {70});
  const Tensor x = convert(wide, {{70}, DType::bf16, nullptr});
  Tape tape;
  tape.watch(x);
  const Tensor y = ops::relu(x);
  const auto result = convert(y, wide.spec()).to_vector();
  const Tensor sum = apply_op(optest::make_weighted_sum(optest::Array({70}, 1)), {y})[0];
  const auto slopes = convert(tape.gradient(sum, {x})[0], wide.spec()).to_vector();
  EXPECT_TRUE(std::isnan(result[0]) && std::isnan(result[1]));
  for (size_t i = 2; i < values.size(); ++i) {
    EXPECT_EQ(result[i], values[i] > 0 ? values[i] : 0) << values[i];
    EXPECT_EQ(slopes[i], values[i] > 0 ? 1 : 0) << values[i];
  }
  EXPECT_EQ(slopes[0], 0);
}

TEST(Activations, KeepNanAndGiveTheirLimitsAtInfinities) {
  struct Row {
    OpPtr op;
    float below, above;              // limits
    float slope_below, slope_above;  // of the derivative
  };
  for (const Row& row :
       {Row{ops::make_leaky_relu(0.25), -inf, inf, 0.25f, 1},
        Row{ops::make_leaky_relu(0), 0, inf, 0, 1}, Row{ops::make_elu(0.5), -0.5f, inf, 0, 1},
        Row{ops::make_gelu(ops::GeluApproximation::none), 0, inf, 0, 1},
        Row{ops::make_gelu(ops::GeluApproximation::tanh), 0, inf, 0, 1},
        Row{ops::make_swish(), 0, inf, 0, 1}, Row{ops::make_tanh(), -1, 1, 0, 0},
        Row{ops::make_sigmoid(), 0, 1, 0, 0}, Row{ops::make_softplus(), 0, inf, 0, 1}}) {
    SCOPED_TRACE(row.op->type());
    const float most = std::numeric_limits<float>::max();
    const Tensor x = from({nan, -inf, inf, -most, most}, {5});
    Tape tape;
    tape.watch(x);
    const Tensor y = apply_op(row.op, {x})[0];
    const auto values = y.to_vector(), slopes = tape.gradient(ops::sum(y), {x})[0].to_vector();
    EXPECT_TRUE(std::isnan(values[0]));
    EXPECT_EQ(values[1], row.below);
    EXPECT_EQ(values[2], row.above);
    EXPECT_FALSE(std::isnan(values[3]) || std::isnan(values[4]));
    for (size_t i : {1u, 3u}) EXPECT_EQ(slopes[i], row.slope_below);
    for (size_t i : {2u, 4u}) EXPECT_EQ(slopes[i], row.slope_above);
  }
}

TEST(MaxPooling, GivesTheGradientToTheFirstOfEqualElements) {
  for (int64_t channels : {1, 16}) {
    const Tensor x = Tensor::full({1, channels, 2, 4}, 5);
    Tape tape;
    tape.watch(x);
    const Tensor y = ops::max_pooling2d(x, {.pool = {2, 2}, .stride = {2, 2}});
    const auto d = tape.gradient(ops::sum(y), {x})[0].to_vector();
    for (int64_t c = 0; c < channels; ++c) {
      const auto plane = d.begin() + c * 8;
      EXPECT_EQ(std::vector<float>(plane, plane + 8), (std::vector<float>{1, 0, 1, 0, 0, 0, 0, 0}));
    }
  }
}

TEST(AveragePooling, CountsPaddingOnlyWhereAsked) {
  const Tensor x = Tensor::full({1, 1, 2, 2}, 1);
  const ops::Pooling2dParams p{.pool = {2, 2}, .stride = {2, 2}, .padding = padding(1)};
  auto without = p;
  without.count_padding = false;
  EXPECT_EQ(ops::average_pooling2d(x, p).to_vector(), std::vector<float>(4, 0.25f));
  EXPECT_EQ(ops::average_pooling2d(x, without).to_vector(), std::vector<float>(4, 1));
}

TEST(Softmax, SurvivesHugeLogits) {
  EXPECT_EQ(ops::softmax(from({3e38f, -3e38f, 0, 88, 88, -1e30f}, {2, 3})).to_vector(),
            (std::vector<float>{1, 0, 0, 0.5f, 0.5f, 0}));
  const auto image = ops::softmax(from({1000, -1000, 1000, 1000}, {1, 2, 1, 2})).to_vector();
  EXPECT_EQ(image, (std::vector<float>{0.5f, 0, 0.5f, 1}));
  EXPECT_EQ(ops::softmax(from({1, -inf}, {1, 2})).to_vector(), (std::vector<float>{1, 0}));
}

TEST(CrossEntropy, FromLogitsIsExactFarApart) {
  const Tensor logits = from({-1000, 1000, 0, 20}, {2, 2});
  const auto loss = ops::softmax_cross_entropy(logits, labels({0, 1})).to_vector();
  EXPECT_EQ(loss[0], 2000);
  EXPECT_NEAR(loss[1], std::log1p(std::exp(-20.0)), 1e-15);
}

TEST(CrossEntropy, ALabelOutOfRangeGivesNanInItsRowOnly) {
  const Tensor scores = from({0.25f, 0.75f, 0.25f, 0.75f, 0.25f, 0.75f, 0.5f, 0.5f}, {4, 2});
  const Tensor classes = labels({1, 2, -1, 0});
  for (bool logits : {false, true}) {
    const auto loss =
        (logits ? ops::softmax_cross_entropy(scores, classes) : ops::cross_entropy(scores, classes))
            .to_vector();
    EXPECT_TRUE(std::isfinite(loss[0]));
    EXPECT_TRUE(std::isnan(loss[1]));
    EXPECT_TRUE(std::isnan(loss[2]));
    EXPECT_FLOAT_EQ(loss[3], std::log(2.0f));
  }
}

TEST(CrossEntropy, TheSmallestAndLargestLabelsAreOutOfRange) {
  using Limits = std::numeric_limits<int32_t>;
  const Tensor scores = from({0.5f, 0.5f, 0.5f, 0.5f}, {2, 2});
  for (float v : ops::cross_entropy(scores, labels({Limits::min(), Limits::max()})).to_vector()) {
    EXPECT_TRUE(std::isnan(v));
  }
}

TEST(CrossEntropy, OfOneHotSharesIsThatOfTheLabels) {
  const Tensor scores = from({0.25f, 0.5f, 0.25f, 0.0f, 0.75f, 0.25f}, {2, 3});
  const Tensor shares = from({0, 1, 0, 0, 0, 1}, {2, 3});
  EXPECT_EQ(ops::softmax_cross_entropy(scores, shares).to_vector(),
            ops::softmax_cross_entropy(scores, labels({1, 2})).to_vector());
  const auto loss = ops::cross_entropy(scores, shares).to_vector();
  EXPECT_FLOAT_EQ(loss[0], std::log(2.0f));
  EXPECT_FLOAT_EQ(loss[1], std::log(4.0f)) << "a share of 0 of something impossible";
  const Tensor far = from({-inf, 1000, 0, 20}, {2, 2});
  EXPECT_EQ(ops::softmax_cross_entropy(far, from({0, 1, 0.5f, 0.5f}, {2, 2})).to_vector(),
            (std::vector<float>{0, 10}));
}

TEST(Sum, AddsInDoublePrecision) {
  std::vector<float> values(100001, 1e-3f);
  values[0] = 16777216;  // 2^24: in single precision further additions would have no effect
  const Tensor x = from(values, {100001});
  EXPECT_EQ(ops::sum(x).item(), 16777316.0f);
  EXPECT_EQ(ops::mean(x).item(), static_cast<float>(16777316.0 / 100001));
  EXPECT_EQ(ops::sum(x).shape().rank(), 0);
  EXPECT_EQ(ops::sum(Tensor::zeros({0, 3})).item(), 0);
}

// The eager function refuses it.
TEST(BatchNormalization, OfASingleElementGivesTheShift) {
  const Tensor x = from({3, -4}, {1, 2}), scale = from({2, 2}, {2}), shift = from({5, 6}, {2});
  const auto r = apply_op(ops::make_batch_normalization(1e-5, true), {x, scale, shift});
  EXPECT_EQ(r[0].to_vector(), (std::vector<float>{5, 6}));
  EXPECT_EQ(r[1].to_vector(), (std::vector<float>{3, -4}));
  EXPECT_EQ(r[2].to_vector(), (std::vector<float>{0, 0}));
}

TEST(Fusion, StandsForTheTwoOpsItReplaces) {
  const auto norm = ops::make_batch_normalization(1e-5, true)->fuse(*ops::make_relu());
  ASSERT_TRUE(norm);
  EXPECT_EQ(norm->first_outputs, (std::vector<int>{-1, 1, 2}));
  EXPECT_EQ(norm->second_outputs, (std::vector<int>{0}));
  EXPECT_FALSE(norm->op->fuse(*ops::make_relu()));
  const auto pooled = norm->op->fuse(*ops::make_max_pooling2d({.pool = {3, 2}, .stride = {3, 2}}));
  ASSERT_TRUE(pooled);
  EXPECT_EQ(pooled->first_outputs, (std::vector<int>{-1, 1, 2}));
  EXPECT_EQ(pooled->second_outputs, (std::vector<int>{0}));
  EXPECT_FALSE(pooled->op->fuse(*ops::make_max_pooling2d({.pool = {2, 2}, .stride = {2, 2}})));
  EXPECT_FALSE(norm->op->fuse(*ops::make_max_pooling2d({.pool = {3, 3}, .stride = {2, 2}})));
  EXPECT_FALSE(norm->op->fuse(
      *ops::make_max_pooling2d({.pool = {2, 2}, .stride = {2, 2}, .padding = padding(1)})));
  EXPECT_FALSE(norm->op->fuse(*ops::make_average_pooling2d({.pool = {2, 2}, .stride = {2, 2}})));
  EXPECT_FALSE(ops::make_batch_normalization(1e-5, true)->fuse(*ops::make_softmax()));
  const auto loss = ops::make_softmax()->fuse(*ops::make_cross_entropy());
  ASSERT_TRUE(loss);
  EXPECT_EQ(loss->first_outputs, (std::vector<int>{1}));
  EXPECT_EQ(loss->second_outputs, (std::vector<int>{0}));
  EXPECT_FALSE(ops::make_softmax()->fuse(*ops::make_softmax_cross_entropy()));
  EXPECT_FALSE(ops::make_relu()->fuse(*ops::make_relu()));
}

// NaN inputs give NaN outputs, so that a diverged training is detected.
TEST(Fusion, OfNormalizationAndMaximumKeepsWhatIsNotANumber) {
  const auto op = ops::make_batch_normalization(1e-5, true)
                      ->fuse(*ops::make_relu())
                      ->op->fuse(*ops::make_max_pooling2d({.pool = {2, 2}, .stride = {2, 2}}))
                      ->op;
  std::vector<float> x(2 * 2 * 4 * 4, 0.5f);
  x[5] = std::numeric_limits<float>::quiet_NaN();  // in channel 0
  const Tensor one = Tensor::full({2}, 1);
  const auto y = apply_op(op, {from(x, {2, 2, 4, 4}), one, one});
  const auto values = y[0].to_vector(), mean = y[1].to_vector();
  EXPECT_TRUE(std::isnan(mean[0]));
  EXPECT_FALSE(std::isnan(mean[1]));
  for (size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(std::isnan(values[i]), i / 4 % 2 == 0) << i;
  }
}

class Dropout : public testing::Test {
 protected:
  // The elements that are kept.
  static std::vector<bool> mask(const Shape& shape, double p, uint64_t layer,
                                const RandomContext& step) {
    const auto y = ops::dropout(Tensor::full(shape, 1), p, layer, step).to_vector();
    std::vector<bool> kept;
    for (float v : y) kept.push_back(v != 0);
    return kept;
  }
};

TEST_F(Dropout, IsTheSameHoweverTheRowsAreShared) {
  const Tensor all = tensor_of(random_array({10, 11, 3, 5}, 1));
  const auto whole = ops::dropout(all, 0.4, 7, {3, 9, 0}).to_vector();
  const int64_t row = 11 * 3 * 5;
  for (const auto& cuts :
       std::vector<std::vector<int64_t>>{{0, 4, 10}, {0, 1, 2, 9, 10}, {0, 10}}) {
    std::vector<float> parts;
    for (size_t k = 0; k + 1 < cuts.size(); ++k) {
      const auto values = all.to_vector();
      const Tensor shard =
          from({values.begin() + cuts[k] * row, values.begin() + cuts[k + 1] * row},
               {cuts[k + 1] - cuts[k], 11, 3, 5});
      const auto y = ops::dropout(shard, 0.4, 7, {3, 9, cuts[k]}).to_vector();
      parts.insert(parts.end(), y.begin(), y.end());
    }
    EXPECT_EQ(parts, whole);
  }
}

TEST_F(Dropout, DependsOnSeedLayerIterationAndRow) {
  const Shape shape{1, 200};
  const auto base = mask(shape, 0.5, 1, {1, 1, 1});
  EXPECT_EQ(mask(shape, 0.5, 1, {1, 1, 1}), base);
  EXPECT_NE(mask(shape, 0.5, 1, {2, 1, 1}), base);
  EXPECT_NE(mask(shape, 0.5, 2, {1, 1, 1}), base);
  EXPECT_NE(mask(shape, 0.5, 1, {1, 2, 1}), base);
  EXPECT_NE(mask(shape, 0.5, 1, {1, 1, 2}), base);
}

TEST_F(Dropout, DropsTheRightShareAndKeepsTheMean) {
  for (double p : {0.1, 0.5, 0.9}) {
    const auto kept = mask({1000, 100}, p, 5, {11, 3, 0});
    const double n = static_cast<double>(kept.size());
    const double dropped = n - static_cast<double>(std::count(kept.begin(), kept.end(), true));
    EXPECT_NEAR(dropped / n, p, 5 * std::sqrt(p * (1 - p) / n));
    // Neighbors are independent: both are dropped with probability p * p.
    int64_t both = 0;
    for (size_t i = 1; i < kept.size(); ++i) both += !kept[i - 1] && !kept[i];
    EXPECT_NEAR(static_cast<double>(both) / n, p * p, 0.01);
    const Tensor y = ops::dropout(Tensor::full({4, 4}, 3), p, 5, {11, 3, 0});
    for (float v : y.to_vector()) {
      if (v == 0) continue;
      EXPECT_FLOAT_EQ(v, static_cast<float>(3 / (1 - p)));
    }
  }
}

TEST_F(Dropout, OfProbabilityZeroChangesNothing) {
  const Tensor x = tensor_of(random_array({5, 7}, 2));
  EXPECT_EQ(ops::dropout(x, 0, 1, {1, 1, 1}).to_vector(), x.to_vector());
}

TEST_F(Dropout, ZeroesWhatItDropsWhateverItWas) {
  const Tensor x = Tensor::full({1, 100}, nan);
  int zeros = 0;
  for (float v : ops::dropout(x, 0.5, 1, {1, 1, 1}).to_vector()) zeros += v == 0;
  EXPECT_GT(zeros, 20);
}

TEST(NormalizeImages, OfPixelsEqualsThatOfTheirFloats) {
  std::vector<uint8_t> pixels(2 * 3 * 5 * 7);
  for (size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<uint8_t>(i * 37);
  const Shape shape{2, 3, 5, 7};
  const Tensor u8 = Tensor::from(std::span<const uint8_t>(pixels), shape);
  const Tensor f32 = from({pixels.begin(), pixels.end()}, shape);
  const Tensor offset = from({120.5f, 0, 255}, {3}), factor = from({0.017f, 1, -2}, {3});
  EXPECT_EQ(ops::normalize_images(u8, offset, factor).to_vector(),
            ops::normalize_images(f32, offset, factor).to_vector());
}

}  // namespace
}  // namespace lockstep
