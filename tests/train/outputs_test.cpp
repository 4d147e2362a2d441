// Networks with several results, each with a loss and a weight.
#include <gtest/gtest.h>

#include <cmath>

#include "lockstep/base/error.h"
#include "lockstep/data/datastores/datastores.h"
#include "lockstep/engine/ops/ops.h"
#include "lockstep/train/programs/shard.h"
#include "lockstep/train/trainer.h"
#include "tests/train/support.h"

namespace lockstep {
namespace {

using testing::message_of;

constexpr int64_t kObservations = 70;

// Two numbers, in units of `scale`, then which of three classes is right.
TrainingData numbers_and_classes(float scale = 1) {
  ArrayBlock inputs{.count = kObservations, .shape = {3}}, targets = inputs;
  targets.shape = {5};
  for (int64_t i = 0; i < kObservations; ++i) {
    const float a = static_cast<float>(i * 7 % 11) / 4 - 1,
                b = static_cast<float>(i * 5 % 13) / 6 - 1;
    const int64_t label = a + b > 0.5f ? 2 : b > 0 ? 1 : 0;
    for (const float value : {a, b, 1.0f}) inputs.values.push_back(value);
    targets.values.push_back(scale * (a - b));
    targets.values.push_back(scale * 2 * a);
    for (int64_t c = 0; c < 3; ++c) targets.values.push_back(c == label ? 1.0f : 0.0f);
  }
  TrainingData data{.training = array_datastore(std::move(inputs))};
  data.training_targets = array_datastore(std::move(targets));
  data.validation = data.training;
  data.validation_targets = data.training_targets;
  return data;
}

Network two_heads(const std::string& loss = "mean_squared_error", double weight = 0.5) {
  Network network;
  network.add(feature_input({.features = 3, .normalization = "none"}), "in");
  network.add(fully_connected({.units = 12}), "trunk");
  network.add(tanh(), "tanh");
  network.add(fully_connected({.units = 2}), "number", {"tanh"});
  network.add(fully_connected({.units = 3}), "kind", {"tanh"});
  network.add(outputs({.losses = {loss, "cross_entropy"}, .weights = {weight, 2}}), "outputs",
              {"number", "kind"});
  network.set_loss("mean_squared_error");
  network.initialize(3);
  return network;
}

TrainingOptions heads_options(int64_t threads = 2) {
  TrainingOptions options = testing::small_options();
  options.solver.type = "adam";
  options.solver.initial_learning_rate = 0.02;
  options.max_epochs = 40;
  options.threads = threads;
  options.validation.metrics = {"number: rmse", "kind: accuracy", "rmse"};
  return options;
}

// The same loss as a function of ops on the heads.
Tensor loss_of_heads(Shard& shard) {
  const Tensor number = shard.forward(shard[0], {.outputs = {"number"}});
  const Tensor kind = shard.forward(shard[0], {.outputs = {"kind"}});
  const Tensor difference = number - ops::slice(shard[1], {{}, {0, 2}});
  const Tensor logs = ops::log(ops::softmax(kind));
  return ops::mean(ops::square(difference), {1}) * 0.5 -
         ops::sum(logs * ops::slice(shard[1], {{}, {2, 5}}), {1}) * 2.0;
}

TEST(Outputs, HaveTheSumOfTheirLosses) {
  Network network = two_heads(), by_hand = two_heads();
  const TrainingResult result = train(network, numbers_and_classes(), heads_options());
  TrainingData data = numbers_and_classes();
  data.loss = {loss_of_heads, "heads"};
  TrainingOptions options = heads_options();
  options.validation.metrics = {};
  const TrainingResult other = train(by_hand, data, options);
  ASSERT_EQ(result.iterations.size(), other.iterations.size());
  for (size_t i = 0; i < 20; ++i) {
    EXPECT_NEAR(result.iterations[i].loss, other.iterations[i].loss, 1e-4) << i;
  }
  EXPECT_GT(result.iterations.front().loss, 2 * result.iterations.back().loss);
  Network expression = two_heads("mean(square(output - target))");
  EXPECT_NEAR(train(expression, numbers_and_classes(), heads_options()).iterations[5].loss,
              result.iterations[5].loss, 1e-4);
}

TEST(Outputs, HaveMetricsOfTheirOwn) {
  Network network = two_heads();
  const TrainingData data = numbers_and_classes();
  const TrainingResult result = train(network, data, heads_options());
  const std::vector<float> got = predict(network, data.training, {.threads = 1}).to_vector();
  double squares = 0;
  int64_t right = 0;
  for (int64_t i = 0; i < kObservations; ++i) {
    const std::vector<float> target =
        std::get<Array>(data.training_targets->read(i).inputs.at(0)).values;
    const float* const row = got.data() + i * 5;
    for (size_t c = 0; c < 2; ++c) squares += std::pow(double{row[c]} - double{target[c]}, 2) / 2;
    EXPECT_NEAR(row[2] + row[3] + row[4], 1, 1e-5);  // probabilities
    right += predicted_class({row + 2, 3}) == predicted_class(std::span(target).subspan(2)) ? 1 : 0;
  }
  const std::vector<MetricValue>& metrics = result.validations.back().metrics;
  ASSERT_EQ(metrics.size(), 3u);
  EXPECT_EQ(metrics[0].name, "number: rmse");
  EXPECT_NEAR(metrics[0].value, std::sqrt(squares / kObservations), 1e-6);
  EXPECT_EQ(metrics[1].value, static_cast<double>(right) / kObservations);
  EXPECT_GT(metrics[1].value, 0.8);
  EXPECT_TRUE(larger_is_better("kind: accuracy"));
  EXPECT_FALSE(larger_is_better("number: rmse"));
}

TEST(Outputs, HaveOneDigestForThreads) {
  Network first = two_heads();
  const TrainingResult one = train(first, numbers_and_classes(), heads_options(1));
  for (const int64_t threads : {2, 5}) {
    Network network = two_heads();
    const TrainingResult many = train(network, numbers_and_classes(), heads_options(threads));
    EXPECT_EQ(many.digest, one.digest) << threads;
    EXPECT_EQ(many.validations.back().metrics, one.validations.back().metrics) << threads;
  }
}

Network scaled_heads() {
  Network network = two_heads();
  network.add(denormalization({.normalization = "z-score"}), "scaled");
  network.initialize(3);
  return network;
}

// As a network without the layer on targets that the test has scaled.
TEST(Outputs, LearnScaledNumbersAndPlainClasses) {
  const TrainingData data = numbers_and_classes(1e5f);
  Network scaled = scaled_heads(), plain = two_heads();
  const TrainingResult result = train(scaled, data, heads_options());
  const std::vector<float> offset = scaled.state_value("scaled.offset").to_vector();
  const std::vector<float> scale = scaled.state_value("scaled.scale").to_vector();
  for (size_t c = 0; c < 5; ++c) {
    EXPECT_EQ(scale[c] > 1e4f, c < 2) << scale[c];
    if (c < 2) continue;
    EXPECT_EQ(offset[c], 0);
    EXPECT_EQ(scale[c], 1);
  }
  TrainingData by_hand = numbers_and_classes();
  ArrayBlock targets{.count = kObservations, .shape = {5}};
  for (int64_t i = 0; i < kObservations; ++i) {
    const Example example = data.training_targets->read(i);
    const Array& array = std::get<Array>(example.inputs.at(0));
    for (size_t c = 0; c < 5; ++c) {
      targets.values.push_back((array.values[c] - offset[c]) / scale[c]);
    }
  }
  by_hand.training_targets = by_hand.validation_targets = array_datastore(std::move(targets));
  const TrainingResult other = train(plain, by_hand, heads_options());
  ASSERT_EQ(result.iterations.size(), other.iterations.size());
  for (size_t i = 0; i < result.iterations.size(); ++i) {
    ASSERT_EQ(result.iterations[i].loss, other.iterations[i].loss) << i;
  }
  EXPECT_EQ(result.validations.back().loss, other.validations.back().loss);
  EXPECT_EQ(result.validations.back().metrics[1], other.validations.back().metrics[1]);
  const std::vector<float> units = predict(scaled, data.training, {.threads = 1}).to_vector();
  const std::vector<float> scores = predict(plain, data.training, {.threads = 1}).to_vector();
  double squares = 0;
  for (size_t i = 0; i < units.size(); ++i) {
    const size_t c = i % 5;
    if (c >= 2) {
      EXPECT_EQ(units[i], scores[i]) << i;
      continue;
    }
    EXPECT_NEAR(units[i], scores[i] * scale[c] + offset[c], 0.1) << i;
    const Example example = data.training_targets->read(static_cast<int64_t>(i / 5));
    const Array& array = std::get<Array>(example.inputs.at(0));
    squares += std::pow(double{units[i]} - double{array.values[c]}, 2) / 2;
  }
  const double rmse = std::sqrt(squares / kObservations);
  EXPECT_NEAR(result.validations.back().metrics[0].value, rmse, 1e-5 * rmse);
}

// A loss of 0 and 1 is not scaled either.
TEST(Outputs, ScaleNoLossOfZeroAndOne) {
  Network network = two_heads("mean(binary_cross_entropy_with_logits(output, target))");
  network.add(denormalization({.normalization = "z-score"}), "scaled");
  network.initialize(3);
  EXPECT_NE(message_of<InvalidArgument>([&] {
              train(network, numbers_and_classes(), heads_options());
            }).find("all outputs learn classes"),
            std::string::npos);
}

TEST(Outputs, RefuseWhatDoesNotFit) {
  const auto refusal = [](const std::function<void(Network&, TrainingOptions&)>& change) {
    Network network = two_heads();
    TrainingOptions options = heads_options();
    change(network, options);
    return message_of<InvalidArgument>([&] { train(network, numbers_and_classes(), options); });
  };
  const auto with_metric = [](const char* metric) {
    return [metric](Network&, TrainingOptions& o) { o.validation.metrics = {metric}; };
  };
  const auto contains = [](const std::string& text, const char* part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  contains(refusal(with_metric("kind: rmse")), "rmse is a regression metric");
  contains(refusal(with_metric("number: accuracy")), "accuracy is a classification metric");
  contains(refusal(with_metric("knd: accuracy")), "which the network does not have");
  contains(refusal(with_metric("kind: acuracy")), "unknown metric");
  contains(refusal([](Network& n, TrainingOptions&) { n.set_loss("cross_entropy"); }), "loss");
  Network few;
  few.add(feature_input({.features = 3}), "in");
  few.add(outputs({.losses = {"mean_squared_error", "cross_entropy"}, .weights = {1}}), "outputs");
  contains(message_of<InvalidArgument>([&] { few.check(); }), "received 1 inputs, 2 losses");
}

}  // namespace
}  // namespace lockstep
