// A custom layer with parameters and state of every rule, under the law.
#include "lockstep/engine/nn/custom_layer.h"

#include <gtest/gtest.h>

#include "tests/train/support.h"

namespace lockstep {
namespace {

using namespace lockstep::testing;

struct Watched {
  static constexpr const char* kType = "watched";
  static constexpr const char* kHelp = "a scale for each channel, and what passes through";
  void visit(FieldVisitor&) {}
  Value build(LayerBuilder& layer, Value x) const {
    const int64_t c = x.shape()[1];
    const Value scale = layer.parameter("scale", {c}, "ones"),
                shift = layer.parameter("shift", {c}, "zeros");
    const auto normalized = ops::batch_normalization_training(x, scale, shift);
    layer.follow_mean_and_variance(layer.state("mean", {c}), layer.state("variance", {c}, 1),
                                   normalized.mean, normalized.variance);
    layer.follow_mean(layer.state("other_mean", {c}), normalized.mean);
    const Value rows =
        ops::sum(x * x) * (1.0 / static_cast<double>(x.shape()[2] * x.shape()[3] * c));
    layer.add_sum(layer.state("energy", {}), rows);
    layer.keep_maximum(layer.state("largest", {}), rows);
    return normalized.y + x;
  }
};

Network network() {
  Network n{image_input({.height = 28, .width = 28, .channels = 1}),
            convolution2d({.filters = 5, .kernel = {5, 5}, .stride = {3, 3}}),
            custom_layer(Watched{}),
            relu(),
            fully_connected({.units = 10}),
            softmax()};
  n.initialize(1);
  return n;
}

TEST(OwnLayerLaw, OneDigestForAnyNumberOfThreads) {
  std::vector<Digest> digests;
  std::vector<std::vector<float>> states;
  for (int threads : {1, 2, 3}) {
    Network n = network();
    TrainingOptions options = small_options();
    options.shards.size = 3;  // with three shards the last one nearly always arrives last
    options.threads = threads;
    const auto result = train(n, {.training = some_digits(60)}, options);
    EXPECT_EQ(result.shards_by_thread.size(), static_cast<size_t>(threads));
    for (int64_t shards : result.shards_by_thread) EXPECT_GT(shards, 0) << threads << " threads";
    digests.push_back(result.digest);
    std::vector<float> all;
    for (const auto& state : n.state()) {
      const auto values = state.value.to_vector();
      all.insert(all.end(), values.begin(), values.end());
    }
    states.push_back(all);
    EXPECT_EQ(digests.back(), digests.front()) << threads << " threads";
    EXPECT_EQ(states.back(), states.front()) << threads << " threads";
    // Two rules compute the same mean. Sum and maximum keep part of it.
    EXPECT_EQ(n.state_value("watched_1.mean").to_vector(),
              n.state_value("watched_1.other_mean").to_vector());
    const float energy = n.state_value("watched_1.energy").item(),
                largest = n.state_value("watched_1.largest").item();
    EXPECT_GT(largest, 0);
    EXPECT_GT(energy, largest);
    EXPECT_LT(energy, largest * 42.5f);  // 6 iterations of 7 shards
  }
}

}  // namespace
}  // namespace lockstep
