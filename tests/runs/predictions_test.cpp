#include "lockstep/runs/predictions.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "lockstep/data/datastores/datastores.h"
#include "lockstep/engine/nn/layers.h"
#include "lockstep/train/evaluation/evaluation.h"

namespace lockstep {
namespace {

nlohmann::ordered_json of_digits(int threads) {
  const DatastorePtr digits = split_each_label(builtin_digits(), {0.05}, 3)[0];
  Network network({image_input({.height = 28, .width = 28, .channels = 1, .normalization = "none"}),
                   fully_connected({.units = 10}), softmax()});
  network.initialize(1);
  const PredictionSelector selector(network.output_shapes().front());
  const Evaluation found =
      evaluate(network, digits, {.threads = threads, .custom_metrics = {selector.metric()}});
  EXPECT_EQ(found.metrics.at(0).value, static_cast<double>(digits->size()));
  const auto summary = selector.to_json(*digits);
  EXPECT_EQ(summary["wrong"].get<int64_t>(),
            digits->size() - std::llround(found.accuracy * static_cast<double>(digits->size())));
  return summary;
}

TEST(Predictions, TheWorstImagesDoNotDependOnThreads) {
  const auto summary = of_digits(1);
  EXPECT_EQ(summary, of_digits(3));
  EXPECT_EQ(summary["kind"], "classes");
  const auto& worst = summary["worst"];
  ASSERT_GT(worst.size(), 10u);
  for (size_t i = 0; i < worst.size(); ++i) {
    EXPECT_NE(worst[i]["true"], worst[i]["predicted"]);
    EXPECT_TRUE(worst[i]["image"].get<std::string>().starts_with("iVBORw0KGgo"));
    const auto& before = worst[i > 0 ? i - 1 : i];
    EXPECT_GE(worst[i]["true_score"], before["true_score"]);
  }
}

// Evaluates a network on inputs and targets of one array each.
nlohmann::ordered_json of_targets(Network network, ArrayBlock inputs, ArrayBlock targets) {
  network.initialize(1);
  const DatastorePtr data =
      with_targets(array_datastore(std::move(inputs)), array_datastore(std::move(targets)));
  const PredictionSelector selector(network.output_shapes().front());
  evaluate(network, data, {.threads = 2, .custom_metrics = {selector.metric()}});
  return selector.to_json(*data);
}

TEST(Predictions, OfARegressionArePairsOfTheWholeListing) {
  constexpr int64_t count = 10'000;
  ArrayBlock inputs{.count = count, .shape = {2}}, targets{.count = count, .shape = {1}};
  for (int64_t i = 0; i < count; ++i) {
    inputs.values.insert(inputs.values.end(), {static_cast<float>(i % 7), 1});
    targets.values.push_back(static_cast<float>(i));
  }
  Network network(
      {feature_input({.features = 2, .normalization = "none"}), fully_connected({.units = 1})});
  network.set_loss("mean_squared_error");
  const auto summary = of_targets(std::move(network), inputs, targets);
  EXPECT_EQ(summary["kind"], "values");
  EXPECT_EQ(summary["observations"], count);
  ASSERT_GT(summary["pairs"].size(), 1000u);
  ASSERT_LE(summary["pairs"].size(), 3000u);
  EXPECT_EQ(summary["pairs"][0][1], 0.0);
  EXPECT_GT(summary["pairs"].back()[1].get<double>(), 9000.0);
}

}  // namespace
}  // namespace lockstep
