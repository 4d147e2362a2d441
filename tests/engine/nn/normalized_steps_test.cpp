// Batch normalization of sequences: statistics over valid steps alone.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "lockstep/base/error.h"
#include "lockstep/engine/nn/custom_layer.h"
#include "lockstep/engine/nn/layers.h"
#include "lockstep/engine/nn/network.h"
#include "lockstep/engine/ops/ops.h"
#include "tests/data/support.h"
#include "tests/engine/ops/harness.h"

namespace lockstep {
namespace {

using testing::expect_says;
using testing::message_of;

constexpr int64_t kRows = 5, kChannels = 3;
constexpr double kEpsilon = 1e-3;

Tensor integers(const std::vector<int32_t>& values) {
  return Tensor::from(std::span(values), {static_cast<int64_t>(values.size())});
}

const std::vector<int32_t>& lengths() {
  static const std::vector<int32_t> all{4, 1, 0, 7, 2};
  return all;
}

double number(int64_t row, int64_t t, int64_t c, double from) {
  return from * static_cast<double>(c) + std::sin(static_cast<double>(row * 31 + t * 7 + c * 3));
}

// kRows x steps x kChannels, with `after` after the ends.
Tensor sequences(int64_t steps, float after, double from = 0) {
  std::vector<float> values;
  for (int64_t i = 0; i < kRows * steps * kChannels; ++i) {
    const int64_t row = i / (steps * kChannels), t = i / kChannels % steps;
    const bool valid = t < lengths()[static_cast<size_t>(row)];
    values.push_back(valid ? static_cast<float>(number(row, t, i % kChannels, from)) : after);
  }
  return Tensor::from(std::span<const float>(values), {kRows, steps, kChannels});
}

Network normalizing(BatchNormalizationOptions options = {.epsilon = kEpsilon}) {
  Network network{sequence_input({.channels = kChannels, .normalization = "none"}),
                  batch_normalization(options)};
  network.initialize(1);
  network.parameter("batch_normalization_1.scale")
      .copy_from(Tensor::from(std::vector<float>{0.5f, -2, 3}, {kChannels}));
  network.parameter("batch_normalization_1.shift")
      .copy_from(Tensor::from(std::vector<float>{1, 0.25f, -1}, {kChannels}));
  return network;
}

// The valid values of a tensor of the shape of sequences(), channel by channel, in double.
std::vector<std::vector<double>> valid_of(const Tensor& x) {
  std::vector<std::vector<double>> all(kChannels);
  const std::vector<float> values = x.to_vector();
  const int64_t steps = x.shape()[1];
  for (int64_t i = 0; i < x.shape().elements(); ++i) {
    const int64_t row = i / (steps * kChannels), t = i / kChannels % steps;
    if (t >= lengths()[static_cast<size_t>(row)]) continue;
    all[static_cast<size_t>(i % kChannels)].push_back(
        static_cast<double>(values[static_cast<size_t>(i)]));
  }
  return all;
}

double mean_of(const std::vector<double>& x) {
  double sum = 0;
  for (const double value : x) sum += value;
  return sum / static_cast<double>(x.size());
}

double variance_of(const std::vector<double>& x) {
  const double mean = mean_of(x);
  double sum = 0;
  for (const double value : x) sum += (value - mean) * (value - mean);
  return sum / static_cast<double>(x.size());
}

constexpr double kScale[] = {0.5, -2, 3}, kShift[] = {1, 0.25, -1};

// PyTorch's BatchNorm1d over the concatenated valid steps, in double.
TEST(NormalizedSteps, AreBatchNormalizationOfTheValidSteps) {
  for (const double from : {0.0, 300.0}) {
    Network network = normalizing();
    const Tensor x = sequences(7, 1000, from);
    const Tensor y = network.forward({x}, {.training = true, .lengths = {integers(lengths())}});
    const auto in = valid_of(x), out = valid_of(y);
    const auto moving_mean = network.state_value("batch_normalization_1.mean").to_vector(),
               moving_variance = network.state_value("batch_normalization_1.variance").to_vector();
    for (size_t c = 0; c < kChannels; ++c) {
      ASSERT_EQ(out[c].size(), 14u);
      const double mean = mean_of(in[c]), variance = variance_of(in[c]);
      for (size_t i = 0; i < in[c].size(); ++i) {
        const double wanted =
            kScale[c] * (in[c][i] - mean) / std::sqrt(variance + kEpsilon) + kShift[c];
        EXPECT_NEAR(out[c][i], wanted, 4e-6) << from;
      }
      EXPECT_NEAR(moving_mean[c], 0.1 * mean, 1e-7 * (1 + std::fabs(mean)));
      EXPECT_NEAR(moving_variance[c], 0.9 + 0.1 * variance, 2e-7);
    }
  }
}

TEST(NormalizedSteps, GradientsAreThoseOfTheValidSteps) {
  Network network = normalizing();
  const Tensor x = sequences(7, 1000);
  std::vector<float> factors;
  for (int64_t i = 0; i < x.shape().elements(); ++i) {
    factors.push_back(static_cast<float>(std::cos(0.7 * static_cast<double>(i))));
  }
  const Tensor g = Tensor::from(std::span<const float>(factors), x.shape());
  const Tensor scale = network.parameter("batch_normalization_1.scale"),
               shift = network.parameter("batch_normalization_1.shift");
  Tape tape;
  for (const Tensor& watched : {x, scale, shift}) tape.watch(watched);
  const Tensor y = network.forward({x}, {.training = true, .lengths = {integers(lengths())}});
  const Tensor valid = ops::expand_dims(ops::step_mask(integers(lengths()), x.shape()[1]), 2);
  const auto found = tape.gradient(ops::sum(ops::where(valid, y * g, 0)), {x, scale, shift});
  const auto in = valid_of(x), by_output = valid_of(g), dx = valid_of(found[0]);
  for (size_t c = 0; c < kChannels; ++c) {
    const double mean = mean_of(in[c]), root = std::sqrt(variance_of(in[c]) + kEpsilon);
    std::vector<double> normalized, product;
    for (size_t i = 0; i < in[c].size(); ++i) {
      normalized.push_back((in[c][i] - mean) / root);
      product.push_back(by_output[c][i] * normalized[i]);
    }
    const double of_shift = mean_of(by_output[c]), of_scale = mean_of(product);
    const auto n = static_cast<double>(in[c].size());
    for (size_t i = 0; i < in[c].size(); ++i) {
      const double wanted =
          kScale[c] / root * (by_output[c][i] - of_shift - normalized[i] * of_scale);
      EXPECT_NEAR(dx[c][i], wanted, 1e-5);
    }
    EXPECT_NEAR(found[1].to_vector()[c], n * of_scale, 2e-5);
    EXPECT_NEAR(found[2].to_vector()[c], n * of_shift, 2e-5);
  }
  // Nothing flows to what follows the ends.
  double rest = 0;
  for (const float value : found[0].to_vector()) rest += std::fabs(static_cast<double>(value));
  for (const auto& channel : dx) {
    for (const double value : channel) rest -= std::fabs(value);
  }
  EXPECT_NEAR(rest, 0, 1e-9);
}

// Neither its values nor its length.
TEST(NormalizedSteps, PaddingChangesNoBit) {
  struct Run {
    std::vector<std::vector<double>> y;
    std::vector<float> mean, variance;
    bool operator==(const Run&) const = default;
  };
  const auto run = [](int64_t steps, float after) {
    Network network = normalizing();
    const Tensor y = network.forward({sequences(steps, after, 2)},
                                     {.training = true, .lengths = {integers(lengths())}});
    return Run{valid_of(y), network.state_value("batch_normalization_1.mean").to_vector(),
               network.state_value("batch_normalization_1.variance").to_vector()};
  };
  const Run one = run(7, 0);
  for (const int64_t steps : {7, 8, 13, 64, 1000}) {
    EXPECT_TRUE(run(steps, -500) == one) << steps;
  }
  EXPECT_TRUE(run(9, std::numeric_limits<float>::max()) == one);
}

TEST(NormalizedSteps, PredictionsUseTheMovingStatistics) {
  for (const bool training : {false, true}) {
    Network network =
        normalizing({.epsilon = kEpsilon, .statistics = training ? "moving" : "batch"});
    const std::vector<float> mean{0.5f, -1, 2}, variance{0.25f, 4, 1};
    network.state_value("batch_normalization_1.mean").copy_from(Tensor::from(mean, {kChannels}));
    network.state_value("batch_normalization_1.variance")
        .copy_from(Tensor::from(variance, {kChannels}));
    const Tensor x = sequences(7, 1000);
    const Tensor y = network.forward({x}, {.training = training, .lengths = {integers(lengths())}});
    const auto in = valid_of(x), out = valid_of(y);
    for (size_t c = 0; c < kChannels; ++c) {
      for (size_t i = 0; i < in[c].size(); ++i) {
        const double root = std::sqrt(static_cast<double>(variance[c]) + kEpsilon);
        EXPECT_NEAR(out[c][i],
                    kScale[c] * (in[c][i] - static_cast<double>(mean[c])) / root + kShift[c], 4e-6);
      }
    }
    EXPECT_EQ(network.state_value("batch_normalization_1.mean").to_vector(), mean);
  }
}

TEST(NormalizedSteps, SegmentsAreThoseOfTheWhole) {
  Network network{sequence_input({.channels = kChannels, .normalization = "none"}),
                  lstm({.units = 4}), batch_normalization(), relu()};
  network.initialize(1);
  const Tensor x = sequences(8, 0);
  network.forward({x}, {.training = true});
  const Tensor whole = network.predict(x);
  std::vector<Tensor> segments;
  for (const int64_t first : {0, 3, 4}) {
    const int64_t end = first == 0 ? 3 : first == 3 ? 4 : 8;
    segments.push_back(
        network.predict_and_update(ops::slice(x, {{}, {first, end}}).to_row_major()));
  }
  EXPECT_EQ(ops::concat(segments, 1).to_vector(), whole.to_vector());
}

TEST(NormalizedSteps, OneStepIsRefusedAndNoneChangesNothing) {
  Network network = normalizing();
  const Tensor x = sequences(3, 0);
  const auto forward = [&](const std::vector<int32_t>& of, bool update = true) {
    network.forward({x}, {.training = true, .update_state = update, .lengths = {integers(of)}});
  };
  const auto mean = [&] { return network.state_value("batch_normalization_1.mean").to_vector(); };
  const std::vector<float> before = mean();
  for (const bool update : {true, false}) {
    expect_says(message_of<InvalidArgument>([&] {
                  forward({0, 0, 1, 0, 0}, update);
                }),
                "[network] the layer `batch_normalization_1` would normalize single numbers, which "
                "gives 0 whatever they are: the mini-batch has one valid step in all");
  }
  forward({0, 0, 0, 0, 0});
  EXPECT_EQ(mean(), before);
  forward({0, 0, 0, 2, 0}, false);
  EXPECT_EQ(mean(), before);
  forward({0, 0, 0, 2, 0});
  EXPECT_NE(mean(), before);
}

TEST(NormalizedSteps, NeedChannels) {
  Network tokens{token_input({.vocabulary = 7}), batch_normalization()};
  expect_says(message_of<InvalidArgument>([&] { tokens.check(); }),
              "[batch_normalization] expected an input with channels");
}

// Statistics of pixels of each step, as layers of users may have them.
struct CountedWrongly {
  static constexpr const char* kType = "counted_wrongly";
  static constexpr const char* kHelp = "follows with a count of another shape";
  static constexpr bool kTakesSequences = true;
  void visit(FieldVisitor&) {}
  Value build(LayerBuilder& layer, Value x) const {
    const Value mean = layer.state("mean", Shape{x.shape()[2]}),
                variance = layer.state("variance", Shape{x.shape()[2]}, 1);
    const Value own = ops::mean(ops::mean(x, {1}), {0});
    layer.follow_mean_and_variance(mean, variance, own, own, own);
    return x;
  }
};

TEST(NormalizedSteps, CountsAreOneNumber) {
  Network network{sequence_input({.channels = 3}), custom_layer(CountedWrongly{})};
  expect_says(message_of<InvalidArgument>([&] { network.check(); }),
              "[counted_wrongly] statistics with a count need vectors, and a count of 1 number");
}

}  // namespace
}  // namespace lockstep
