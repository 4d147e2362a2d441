// Problems of a network are found before it runs, and reported with the layer.
#include <gtest/gtest.h>

#include <chrono>

#include "lockstep/base/error.h"
#include "lockstep/engine/nn/layers.h"
#include "lockstep/engine/nn/network.h"

namespace lockstep {
namespace {

LayerPtr image(int64_t size = 8, int64_t channels = 3) {
  return image_input({.height = size, .width = size, .channels = channels});
}
LayerPtr convolution(int64_t filters, int64_t groups = 1) {
  return convolution2d(
      {.filters = filters, .kernel = {3, 3}, .padding = same_padding, .groups = groups});
}

// Expects exactly one problem, with this layer and all these words, and that the network cannot
// run.
void expect_problem(const Network& network, const std::string& layer,
                    const std::vector<std::string>& words) {
  const auto problems = network.analyze();
  ASSERT_EQ(problems.size(), 1u) << (problems.empty() ? "" : problems.back().message);
  EXPECT_EQ(problems[0].layer, layer) << problems[0].message;
  for (const auto& word : words) {
    EXPECT_NE(problems[0].message.find(word), std::string::npos)
        << "no `" << word << "` in: " << problems[0].message;
  }
  const auto expect_refused = [&](const char* what, auto call) {
    try {
      call();
      ADD_FAILURE() << what << " accepted it";
    } catch (const InvalidArgument& error) {
      const std::string text = error.what();
      EXPECT_NE(text.find(problems[0].message), std::string::npos) << text;
      EXPECT_NE(text.find(layer), std::string::npos) << text;
    }
  };
  expect_refused("check()", [&] { network.check(); });
  expect_refused("summary()", [&] { network.summary(); });
  expect_refused("initialize()", [&] { Network(network.clone()).initialize(0); });
}

TEST(Analyze, ASoundNetworkHasNoProblems) {
  EXPECT_TRUE((Network{image(), convolution(4), relu(), fully_connected({.units = 10}), softmax()}
                   .analyze()
                   .empty()));
}

TEST(Analyze, AnUnknownInputIsNamedWithTheNearestLayer) {
  Network network{image()};
  network.add(convolution(4), "stem");
  network.add(relu(), "end", {"stme"});
  expect_problem(network, "end", {"`stme`", "did you mean `stem`?"});
}

TEST(Analyze, ACircleIsNamedWithAllItsLayers) {
  Network network{image(8, 4)};
  network.add(addition(), "sum", {"image_input_1", "back"});
  network.add(convolution(4), "there", {"sum"});
  network.add(relu(), "back", {"there"});
  expect_problem(network, "", {"cycle", "sum", "there", "back"});
}

TEST(Analyze, ALayerThatWaitsForItselfIsACircle) {
  Network network{image(8, 4)};
  network.add(addition(), "sum", {"image_input_1", "sum"});
  expect_problem(network, "", {"cycle", "sum"});
}

TEST(Analyze, GroupsThatDoNotDivideAreNamed) {
  Network network{image()};
  network.add(convolution(4, 2), "grouped");
  expect_problem(network, "grouped", {"2 groups", "3 channels", "3x8x8"});
  Network filters{image(8, 4)};
  filters.add(convolution(6, 4), "grouped");
  expect_problem(filters, "grouped", {"4 groups", "6 filters"});
}

TEST(Analyze, AWindowThatDoesNotFitIsNamed) {
  Network network{image(8)};
  network.add(convolution2d({.filters = 4, .kernel = {9, 3}}), "large");
  expect_problem(network, "large", {"3x8x8", "9"});
  Network pooled{image(8)};
  pooled.add(max_pooling2d({.pool = {2, 10}, .stride = {2, 2}}), "pool");
  expect_problem(pooled, "pool", {"3x8x8", "10"});
}

TEST(Analyze, LayersThatNeedImagesNameTheRowsTheyGet) {
  Network network{image()};
  network.add(fully_connected({.units = 5}), "dense");
  network.add(convolution(4), "after");
  expect_problem(network, "after", {"layer's input: 5"});
}

TEST(Analyze, AdditionOfDifferentSizesIsNamed) {
  Network network{image()};
  network.add(convolution(4), "narrow");
  network.add(convolution(5), "wide", {"image_input_1"});
  network.add(addition(), "sum", {"narrow", "wide"});
  expect_problem(network, "sum", {"4x8x8", "5x8x8"});
}

TEST(Analyze, ConcatenationOfDifferentRowsIsNamed) {
  Network network{image()};
  network.add(max_pooling2d({.pool = {2, 2}, .stride = {2, 2}}), "small");
  network.add(concatenation(), "both", {"image_input_1", "small"});
  expect_problem(network, "both", {"3x8x8", "3x4x4"});
}

TEST(Analyze, LayersThatDoNotFitAreNamed) {
  const auto problem = [](LayerPtr layer, const std::vector<std::string>& words) {
    Network n{image(8, 6)};
    n.add(std::move(layer), "it");
    expect_problem(n, "it", words);
  };
  problem(reshape({.size = {6, 8, 9}}), {"[reshape]", "6x8x9 has 432", "has 384", "input: 6x8x8"});
  problem(reshape({.size = {6, 8, 2, 2, 2}}), {"[reshape]", "three extents", "6x8x2x2x2"});
  problem(reshape({}), {"size", "a list", "[]"});
  problem(reshape({.size = {-384}}), {"size", "from 1", "-384"});
  problem(group_normalization({.groups = 4}), {"[group_normalization]", "6 channels", "4 groups"});
  problem(group_normalization({}), {"groups", ">= 1", "0"});
  problem(layer_normalization({.epsilon = 0}), {"epsilon", "> 0"});
  problem(instance_normalization({.learning_rate_factor = -1}), {"learning_rate_factor", "-1"});
  problem(leaky_relu({.scale = -0.5}), {"scale", "-0.5"});
  problem(elu({.alpha = -1}), {"alpha", "-1"});
  problem(gelu({.approximation = "tan"}), {"approximation", "did you mean `tanh`"});
  problem(multiplication(), {"takes 2 or more inputs, has 1"});
  Network different{image()};
  different.add(convolution(4), "conv");
  different.add(multiplication(), "product", {"image_input_1", "conv"});
  expect_problem(different, "product", {"[multiply]", "1x3x8x8", "1x4x8x8"});
  Network features;
  features.add(feature_input({.features = 0}), "vector");
  expect_problem(features, "vector", {"features", "0"});
  Network named;
  named.add(feature_input({.features = 3, .normalization = "zscore"}), "vector");
  expect_problem(named, "vector", {"normalization", "did you mean `z-score`"});
}

TEST(Analyze, ANetworkWithoutInputLayerOrLayersIsNamed) {
  expect_problem(Network(), "", {"no layers"});
  // The first layer has no input, either.
  Network network{relu()};
  const auto problems = network.analyze();
  ASSERT_EQ(problems.size(), 2u);
  EXPECT_EQ(problems[0].layer, "relu_1");
  EXPECT_EQ(problems[1].layer, "");
  EXPECT_NE(problems[1].message.find("no input layer"), std::string::npos);
}

TEST(Analyze, TheWrongNumberOfInputsIsNamed) {
  Network one{image()};
  one.add(addition(), "sum");
  expect_problem(one, "sum", {"2 or more", "has 1"});
  Network two{image()};
  two.add(relu(), "rectify", {"image_input_1", "image_input_1"});
  expect_problem(two, "rectify", {"takes 1 input,", "has 2"});
  Network zero{image()};
  zero.add(image(), "second", {"image_input_1"});
  expect_problem(zero, "second", {"takes 0 inputs", "has 1"});
}

TEST(Analyze, EveryProblemIsReportedOnceWithoutItsConsequences) {
  Network network{image()};
  network.add(convolution(4, 2), "first");  // does not fit
  network.add(relu(), "follows");
  network.add(convolution(4), "fine", {"image_input_1"});
  network.add(addition(), "sum", {"fine", "follows", "missing"});
  network.add(max_pooling2d({.pool = {20, 20}}), "third", {"fine"});
  std::vector<std::string> layers;
  for (const auto& p : network.analyze()) layers.push_back(p.layer);
  EXPECT_EQ(layers, (std::vector<std::string>{"sum", "first", "third"}));
}

// Fields of layers that are made in C++ are checked here, too.
TEST(Analyze, FieldsOutOfRangeAreNamed) {
  const auto problem = [](LayerPtr layer, const std::vector<std::string>& words) {
    Network network{image()};
    network.add(std::move(layer), "bad");
    expect_problem(network, "bad", words);
  };
  problem(convolution2d({.kernel = {3, 3}}), {"filters", "0"});
  problem(convolution2d({.filters = 4, .groups = 0}), {"groups", "0"});
  problem(convolution2d({.filters = 4, .kernel = {0, 3}}), {"kernel", "0"});
  problem(convolution2d({.filters = 4, .stride = {1, -1}}), {"stride", "-1"});
  problem(convolution2d({.filters = 4, .dilation = {0, 1}}), {"dilation"});
  problem(convolution2d({.filters = 4, .padding = padding(-1)}), {"padding", "-1"});
  problem(convolution2d({.filters = 4, .weights_initializer = "glorott"}),
          {"weights_initializer", "glorott"});
  problem(convolution2d({.filters = 4, .weights_l2_factor = -1}), {"weights_l2_factor"});
  problem(fully_connected({.units = -3}), {"units", "-3"});
  problem(dropout({.probability = 1}), {"probability", "1"});
  problem(dropout({.probability = -0.1}), {"probability", "-0.1"});
  problem(batch_normalization({.epsilon = 0}), {"epsilon"});
  problem(batch_normalization({.momentum = 1.5}), {"momentum", "1.5"});
  problem(max_pooling2d({.pool = {0, 2}}), {"pool"});
  problem(average_pooling2d({.pool = {2, 2}, .stride = {0, 1}}), {"stride"});
  Network input;
  input.add(image_input({.height = 8, .width = 0, .channels = 3}), "bad");
  expect_problem(input, "bad", {"width", "0"});
  Network normalization;
  normalization.add(image_input({.height = 8, .width = 8, .channels = 3, .normalization = "z"}),
                    "bad");
  expect_problem(normalization, "bad", {"normalization"});
}

TEST(Analyze, SharedParametersOfAnotherSizeAreNamed) {
  Network network{image()};
  network.add(convolution(8), "owner");
  network.add_shared("owner", "again");  // now on 8 channels
  expect_problem(network, "again", {"8x3x3x3", "owner", "8x8x3x3"});
}

// What is known of a network is of its present layers.
TEST(Analyze, FollowsLayersThatAreAdded) {
  Network network{image()};
  EXPECT_TRUE(network.analyze().empty());
  network.add(convolution(8), "owner");
  EXPECT_EQ(network.outputs().at(0).name, "owner");
  network.add_shared("owner", "again");
  EXPECT_FALSE(network.analyze().empty());
  Network copy = network.clone();
  EXPECT_EQ(copy.analyze().size(), network.analyze().size());
  copy.add(convolution(0), "wrong");
  EXPECT_GT(copy.analyze().size(), network.analyze().size());
  Network segments({sequence_input({.channels = 3}), lstm({.units = 2})});
  EXPECT_GT(segments.most_steps_in_segments(), 0);
  segments.add(lstm({.units = 2, .bidirectional = true}));
  EXPECT_EQ(segments.most_steps_in_segments(), 0);
}

// A layer that shares parameters may run before their owner.
TEST(Analyze, SharedParametersOfAnotherSizeAreNamedInAnyOrder) {
  Network network{image()};
  network.add(convolution(8), "owner", {"again"});
  network.add_shared("owner", "again", {"image_input_1"});
  expect_problem(network, "again", {"8x8x3x3", "owner", "8x3x3x3"});
}

TEST(Analyze, ThousandsOfLayersInReverseOrderTakeNoTime) {
  constexpr int count = 10000;
  Network network;
  for (int i = count; i > 0; --i) {
    network.add(relu(), "r" + std::to_string(i), {i == 1 ? "in" : "r" + std::to_string(i - 1)});
  }
  network.add(image(), "in");
  const auto start = std::chrono::steady_clock::now();
  EXPECT_TRUE(network.analyze().empty());
  const auto unnamed_start = std::chrono::steady_clock::now();
  EXPECT_LT(unnamed_start - start, std::chrono::seconds(2));
  for (int i = 0; i < count; ++i) network.add(relu());
  EXPECT_EQ(network.layers().back().name, "relu_" + std::to_string(count));
  EXPECT_LT(std::chrono::steady_clock::now() - unnamed_start, std::chrono::seconds(2));
}

TEST(Analyze, TheLowestPlaceThatIsReadyComesFirst) {
  Network network;
  network.add(relu(), "c", {"b"});
  network.add(relu(), "d", {"in"});
  network.add(relu(), "b", {"in"});
  network.add(image(), "in");
  network.add(addition(), "sum", {"c", "d"});
  const std::string text = network.summary();
  std::string order;
  for (const char* name : {"\nin ", "\nd ", "\nb ", "\nc ", "\nsum "}) {
    ASSERT_NE(text.find(name), std::string::npos) << text;
    EXPECT_GT(text.find(name), order.empty() ? 0 : text.find(order)) << text;
    order = name;
  }
}

TEST(Analyze, SizesBeyondAllMemoryAreRefused) {
  Network counted{image_input({.height = 1 << 14, .width = 1 << 14, .channels = 1 << 14}),
                  fully_connected({.units = 1 << 20})};
  expect_problem(counted, "fully_connected_1", {"[shape]", "1048576x4398046511104"});
  Network refused{image_input({.height = 1 << 14, .width = 1 << 14, .channels = 1 << 14}),
                  fully_connected({.units = 1 << 17})};
  try {
    refused.initialize(0);
    ADD_FAILURE() << "it was made";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("[memory]"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace lockstep
