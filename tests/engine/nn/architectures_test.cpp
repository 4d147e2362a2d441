#include "lockstep/engine/nn/architectures/architectures.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/engine/ops/ops.h"
#include "tests/engine/ops/harness.h"

namespace lockstep {
namespace {

int64_t count_of(const Network& network, const std::string& type) {
  const auto& layers = network.layers();
  return std::count_if(layers.begin(), layers.end(),
                       [&](const LayerNode& node) { return node.layer->type() == type; });
}

// Number of layers with weights between input and output, as papers count them.
int64_t depth_of(const Network& network) {
  int64_t projections = 0;
  for (const auto& node : network.layers()) {
    projections += node.name.find("/shortcut") != std::string::npos;
  }
  return count_of(network, "convolution2d") + count_of(network, "fully_connected") - projections;
}

TEST(Architectures, HaveTheSizesOfTheirPapers) {
  struct Row {
    Network network;
    int64_t depth, parameters;
  };
  Row rows[] = {
      {lenet5(), 5, 61'706},
      // He et al. 2016, table 6: 0.27 M and 0.85 M with option A; projections add 2,752.
      {resnet20(), 20, 269'722 + 2'752},
      {resnet56(), 56, 853'018 + 2'752},
      {resnet18(), 18, 11'689'512},
      {mlp({.units = {300}}), 2, 300 * 785 + 10 * 301},
      {plain_cnn({.filters = 32, .depth = 4}), 13, 677'610},
  };
  for (Row& row : rows) {
    SCOPED_TRACE(row.network.summary());
    row.network.initialize(0);
    EXPECT_EQ(depth_of(row.network), row.depth);
    EXPECT_EQ(row.network.parameter_elements(), row.parameters);
  }
}

// Those of torchvision 0.30 for a thousand classes; of timm's vit_tiny_patch16_224 without a class
// token (5,717,416 less its 2 x 192); of milesial's Pytorch-UNet with two classes (31,037,633 for
// one).
TEST(Architectures, HaveTheParametersOfOtherImplementations) {
  const std::pair<Network, int64_t> rows[] = {
      {resnet34(), 21'797'672},
      {resnet50(), 25'557'032},
      {mobilenetv2(), 3'504'872},
      {efficientnet_b0(), 5'288'548},
      {efficientnet_b0({.height = 33, .width = 47, .stochastic_depth = 0}), 5'288'548},
      {convnext_tiny(), 28'589'128},
      {convnext_tiny({.height = 64, .width = 70, .stochastic_depth = 0}), 28'589'128},
      {vit_tiny(), 5'717'032},
      {unet(), 31'037'698},
  };
  for (const auto& [network, parameters] : rows) {
    int64_t count = 0;
    Network copy = network.clone();
    copy.initialize(0);
    count = copy.parameter_elements();
    EXPECT_EQ(count, parameters) << network.summary();
  }
  EXPECT_EQ(unet().output_shapes(), (std::vector<Shape>{{2, 128, 128}}));
}

// As in the papers' tables: images of 32, 16 and 8 pixels; of 56, 28, 14 and 7.
TEST(Architectures, ShrinkTheirImages) {
  const auto sizes = [](const Network& network) {
    std::vector<std::string> found;
    const std::string summary = network.summary();
    for (const char* size : {"16x32x32", "32x16x16", "64x8x8", "64x112x112", "64x56x56",
                             "128x28x28", "256x14x14", "512x7x7"}) {
      if (summary.find(size) != std::string::npos) found.emplace_back(size);
    }
    return found;
  };
  EXPECT_EQ(sizes(resnet20()), (std::vector<std::string>{"16x32x32", "32x16x16", "64x8x8"}));
  EXPECT_EQ(sizes(resnet18()), (std::vector<std::string>{"64x112x112", "64x56x56", "128x28x28",
                                                         "256x14x14", "512x7x7"}));
}

// One step of gradient descent on a few small images lowers their loss.
TEST(Architectures, LearnSomething) {
  for (const Architecture& a : architectures()) {
    SCOPED_TRACE(a.name);
    // Labels of pixels, and networks of many parameters that differ from others in sizes alone.
    const std::set<std::string> left_out{"convnext_tiny", "resnet34", "resnet50", "unet"};
    if (left_out.contains(a.name)) continue;
    const int64_t size = a.name == "resnet18" ? 40 : 28;
    nlohmann::json fields{{"height", size}, {"width", size}, {"channels", 2}, {"classes", 3}};
    if (a.name == "vit_tiny") fields["patch"] = 7;
    const bool draws = a.name == "mobilenetv2" || a.name == "efficientnet_b0";
    const float rate = draws || a.name == "vit_tiny" ? 0.001f : 0.01f;
    Network network = a.make(fields);
    network.initialize(1);
    network.state_value("input.offset").copy_from(Tensor::from(std::vector<float>{0, 0}, {2}));
    network.state_value("input.factor").copy_from(Tensor::from(std::vector<float>{1, 1}, {2}));
    EXPECT_EQ(network.output_shapes(), std::vector<Shape>{{3}});
    const Tensor x = optest::tensor_of(optest::random_array({6, 2, size, size}, 1, -1, 1));
    const Tensor labels = Tensor::from(std::vector<int32_t>{0, 1, 2, 0, 1, 2}, Shape{6});
    const auto parameters = network.parameter_values();
    std::vector<double> losses;
    for (uint64_t iteration = 1; iteration <= 3; ++iteration) {
      Tape tape;
      tape.watch(parameters);
      const Tensor loss = ops::mean(
          ops::cross_entropy(network.forward({x}, {true, {0, draws ? 1 : iteration, 0}}), labels));
      losses.push_back(static_cast<double>(loss.item()));
      ASSERT_TRUE(std::isfinite(losses.back()));
      const auto gradients = tape.gradient(loss, parameters);
      for (size_t i = 0; i < parameters.size(); ++i) {
        const auto g = gradients[i].to_vector();
        for (size_t k = 0; k < g.size(); ++k) parameters[i].data<float>()[k] -= rate * g[k];
      }
    }
    EXPECT_LT(losses.back(), losses.front());
  }
}

TEST(Architectures, RefuseWhatTheyCannotBe) {
  EXPECT_THROW(architecture("resnet21"), InvalidArgument);
  EXPECT_THROW(cifar_resnet(21), InvalidArgument);
  EXPECT_THROW(cifar_resnet(2), InvalidArgument);
  EXPECT_THROW(resnet20({.classes = 0}), InvalidArgument);
  EXPECT_THROW(mlp({.units = {}}), InvalidArgument);
  EXPECT_THROW(unet({.height = 100}), InvalidArgument);
  EXPECT_THROW(unet({.depth = 9}), InvalidArgument);
  EXPECT_THROW(vit_tiny({.width = 100}), InvalidArgument);
  EXPECT_THROW(efficientnet_b0({.stochastic_depth = 1}), InvalidArgument);
  EXPECT_THROW(architecture("mlp").make({{"depth", 3}}), InvalidArgument);
  // Images that are too small are a problem of the network.
  EXPECT_THROW(plain_cnn({.height = 4, .width = 4, .stages = 8}).check(), InvalidArgument);
  const auto& all = architectures();
  EXPECT_TRUE(std::is_sorted(all.begin(), all.end(),
                             [](const auto& a, const auto& b) { return a.name < b.name; }));
}

}  // namespace
}  // namespace lockstep
