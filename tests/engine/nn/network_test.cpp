#include "lockstep/engine/nn/network.h"

#include <gtest/gtest.h>

#include <set>

#include "lockstep/base/error.h"
#include "lockstep/engine/nn/layers.h"
#include "lockstep/engine/nn/loss.h"

namespace lockstep {
namespace {

LayerPtr image(int64_t size = 8, int64_t channels = 3) {
  return image_input(
      {.height = size, .width = size, .channels = channels, .normalization = "none"});
}

Network small_network() {
  Network network{image(),
                  convolution2d({.filters = 4, .kernel = {3, 3}, .padding = same_padding}),
                  batch_normalization(),
                  relu(),
                  max_pooling2d({.pool = {2, 2}, .stride = {2, 2}}),
                  fully_connected({.units = 10}),
                  softmax()};
  return network;
}

template <class Call>
std::pair<std::string, std::string> error_of(Call call) {
  try {
    call();
  } catch (const InvalidArgument& error) {
    return {error.what(), error.hint()};
  }
  return {"nothing was thrown", ""};
}

TEST(Network, SummaryShowsEveryLayerAndTheTotals) {
  Network network = small_network();
  network.add_shared("batch_normalization_1", "again", {"convolution2d_1"});
  EXPECT_EQ("\n" + network.summary(), R"(
name                   type                 inputs                 output size                         parameters  state
------------------------------------------------------------------------------------------------------------------------
image_input_1          image_input                                       3x8x8                                  -      6
convolution2d_1        convolution2d        image_input_1                4x8x8                                112      -
batch_normalization_1  batch_normalization  convolution2d_1              4x8x8                                  8      8
relu_1                 relu                 batch_normalization_1        4x8x8                                  -      -
max_pooling2d_1        max_pooling2d        relu_1                       4x4x4                                  -      -
fully_connected_1      fully_connected      max_pooling2d_1                 10                                650      -
softmax_1              softmax              fully_connected_1               10                                  -      -
again                  batch_normalization  convolution2d_1              4x8x8  shared with batch_normalization_1       
8 layers, 770 parameters, 14 values of state
)");
}

TEST(Network, LayersGetNamesByTypeAndNumber) {
  Network network{image(), relu(), relu()};
  EXPECT_EQ(network.layers()[0].name, "image_input_1");
  EXPECT_EQ(network.layers()[2].name, "relu_2");
  EXPECT_EQ(network.layers()[2].inputs, std::vector<std::string>{"relu_1"});
  EXPECT_EQ(network.add(relu(), "relu_4"), "relu_4");
  EXPECT_EQ(network.add(relu()), "relu_3") << "the first number that is free";
  EXPECT_EQ(network.add(relu()), "relu_5");
  EXPECT_EQ(network.add(image()), "image_input_2");
  EXPECT_TRUE(network.layers().back().inputs.empty()) << "input layers take nothing";
}

TEST(Network, NamesThatAreTakenOrStrangeAreRefused) {
  Network network{image()};
  network.add(relu(), "stage/block-1_a");
  EXPECT_NE(error_of([&] { network.add(relu(), "stage/block-1_a"); }).first.find("stage/block-1_a"),
            std::string::npos);
  for (const char* name : {"a b", "a\n", "\xc3\xa9", "a:b", "a\"b"}) {
    EXPECT_NE(error_of([&] { network.add(relu(), name); }).first.find("not a valid layer name"),
              std::string::npos)
        << name;
  }
  EXPECT_EQ(network.layers().size(), 2u);
  EXPECT_NE(error_of([&] { network.add(nullptr); }).first, "nothing was thrown");
}

TEST(Network, InputsMayBeAddedLater) {
  Network network;
  network.add(relu(), "last", {"first"});
  network.add(image(), "first");
  EXPECT_TRUE(network.analyze().empty());
  EXPECT_EQ(network.output_shapes(), std::vector<Shape>({Shape{3, 8, 8}}));
}

TEST(Network, SharedLayersHaveOneSetOfParametersAndState) {
  Network network{image(8, 4)};
  network.add(convolution2d({.filters = 4, .kernel = {3, 3}, .padding = same_padding}), "conv");
  network.add(batch_normalization(), "norm");
  network.add_shared("conv", "conv2");
  network.add_shared("conv2",
                     "conv3");  // sharing with a sharing layer means sharing with the first one
  network.add_shared("norm");
  EXPECT_EQ(network.layers()[3].shares, "conv");
  EXPECT_EQ(network.layers()[4].shares, "conv");
  EXPECT_EQ(network.layers()[5].name, "batch_normalization_1");
  network.initialize(1);
  std::vector<std::string> names;
  for (const auto& l : network.parameters()) names.push_back(l.name);
  EXPECT_EQ(names,
            (std::vector<std::string>{"conv.weights", "conv.bias", "norm.scale", "norm.shift"}));
  EXPECT_EQ(network.parameter_elements(), 4 * 4 * 9 + 4 + 4 + 4);
  EXPECT_EQ(network.state().size(), 4u);  // offset, factor, mean, variance
  const auto [text, hint] = error_of([&] { network.add_shared("cnov"); });
  EXPECT_NE(text.find("`cnov`"), std::string::npos) << text;
  EXPECT_NE(hint.find("`conv`"), std::string::npos) << hint;
}

TEST(Network, ValuesAreFoundByNameAndShapesKnownBefore) {
  Network network = small_network();
  const auto shapes = network.value_shapes();
  EXPECT_FALSE(network.initialized());
  EXPECT_TRUE(network.parameters().empty());
  network.initialize(3);
  ASSERT_EQ(shapes.size(), network.parameters().size() + network.state().size());
  size_t i = 0;
  for (const auto& l : network.parameters()) {
    EXPECT_EQ(shapes[i].first, l.name);
    EXPECT_EQ(shapes[i++].second, l.value.shape());
    EXPECT_EQ(network.parameter(l.name).raw(), l.value.raw());
  }
  for (const auto& s : network.state()) {
    EXPECT_EQ(shapes[i].first, s.name);
    EXPECT_EQ(shapes[i++].second, s.value.shape());
    EXPECT_EQ(network.state_value(s.name).raw(), s.value.raw());
  }
  const auto [text, hint] = error_of([&] { network.parameter("convolution2d_1.weight"); });
  EXPECT_NE(text.find("convolution2d_1.weight"), std::string::npos);
  EXPECT_NE(hint.find("`convolution2d_1.weights`"), std::string::npos) << hint;
  EXPECT_NE(error_of([&] { network.state_value("x.mean"); }).first, "nothing was thrown");
}

TEST(Network, InitializeStartsEverythingAnewFromItsSeed) {
  Network a = small_network(), b = small_network();
  a.initialize(5);
  b.initialize(6);
  EXPECT_NE(a.parameter("convolution2d_1.weights").to_vector(),
            b.parameter("convolution2d_1.weights").to_vector());
  b.state_value("batch_normalization_1.mean").data<float>()[0] = 7;
  b.initialize(5);
  for (size_t i = 0; i < a.parameters().size(); ++i) {
    EXPECT_EQ(a.parameters()[i].value.to_vector(), b.parameters()[i].value.to_vector());
  }
  for (size_t i = 0; i < a.state().size(); ++i) {
    EXPECT_EQ(a.state()[i].value.to_vector(), b.state()[i].value.to_vector());
  }
  for (float v : a.state_value("batch_normalization_1.variance").to_vector()) EXPECT_EQ(v, 1);
}

TEST(Network, ACloneIsIndependent) {
  Network network = small_network();
  network.set_loss("mean_squared_error");
  network.initialize(5);
  network.state_value("batch_normalization_1.mean").data<float>()[1] = 3;
  network.parameter("fully_connected_1.bias").data<float>()[2] = 4;
  const Tensor x = Tensor::full({2, 3, 8, 8}, 1);
  const auto before = network.predict(x).to_vector();
  Network copy = network.clone();
  EXPECT_EQ(copy.loss(), "mean_squared_error");
  EXPECT_EQ(copy.predict(x).to_vector(), before);
  copy.parameter("fully_connected_1.bias").data<float>()[2] = -4;
  EXPECT_NE(copy.predict(x).to_vector(), before);
  EXPECT_EQ(network.predict(x).to_vector(), before);
  network.parameter("fully_connected_1.bias").data<float>()[2] = -4;
  EXPECT_EQ(network.predict(x).to_vector(), copy.predict(x).to_vector());
  EXPECT_FALSE(small_network().clone().initialized());
}

TEST(Network, AddingALayerNeedsInitializingAgain) {
  Network network = small_network();
  network.initialize(1);
  network.add(relu());
  EXPECT_FALSE(network.initialized());
  EXPECT_NE(error_of([&] {
              network.predict(Tensor::full({1, 3, 8, 8}, 1));
            }).first.find("not initialized"),
            std::string::npos);
  network.initialize(1);
  EXPECT_EQ(network.predict(Tensor::full({1, 3, 8, 8}, 1)).shape(), (Shape{1, 10}));
}

TEST(Loss, NamesAreKnownAndOthersRefusedWithTheNearest) {
  EXPECT_EQ(loss_names(), (std::vector<std::string>{"cross_entropy", "mean_squared_error"}));
  Network network;
  EXPECT_EQ(network.loss(), "cross_entropy");
  for (const auto& name : loss_names()) {
    network.set_loss(name);
    EXPECT_EQ(network.loss(), name);
  }
  const auto [text, hint] = error_of([&] { network.set_loss("crossentropy"); });
  EXPECT_NE(text.find("`crossentropy`"), std::string::npos);
  EXPECT_NE(hint.find("`cross_entropy`"), std::string::npos) << hint;
  EXPECT_EQ(network.loss(), "mean_squared_error");
}

TEST(Loss, EveryLossAddsOneValueForEachObservation) {
  for (const auto& name : loss_names()) {
    Graph graph;
    const int scores = graph.add_input({5, 3}, DType::f32);
    const LossValues loss = add_loss(graph, name, scores);
    EXPECT_EQ(graph.shape(loss.loss), Shape{5}) << name;
    EXPECT_EQ(graph.inputs(), 2) << name;
  }
  Graph graph;
  const int image = graph.add_input({5, 3, 2, 2}, DType::f32);
  // Maps of scores have a label for each pixel.
  const LossValues loss = add_loss(graph, "cross_entropy", image);
  EXPECT_EQ(graph.shape(loss.target), (Shape{5, 2, 2}));
  EXPECT_EQ(graph.shape(loss.loss), Shape{5});
  EXPECT_NE(error_of([&] { add_loss(graph, "l1", image); }).first, "nothing was thrown");
}

}  // namespace
}  // namespace lockstep
