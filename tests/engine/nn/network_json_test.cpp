#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "lockstep/base/error.h"
#include "lockstep/engine/nn/layers.h"
#include "lockstep/engine/nn/network.h"

namespace lockstep {
namespace {

using nlohmann::json;

// Every registered layer, with all fields different from their defaults if possible.
Network everything() {
  Network n;
  n.add(image_input({.height = 12, .width = 10, .channels = 4, .normalization = "z-score"}), "in");
  n.add(convolution2d({.filters = 8,
                       .kernel = {3, 2},
                       .stride = {1, 2},
                       .padding = {false, 1, 2, 3, 4},
                       .dilation = {2, 1},
                       .groups = 2,
                       .bias = true,
                       .weights_initializer = "he",
                       .bias_initializer = "ones",
                       .weights_l2_factor = 0.5,
                       .bias_l2_factor = 0.25,
                       .weights_learning_rate_factor = 2,
                       .bias_learning_rate_factor = 3}),
        "conv");
  n.add(batch_normalization(
            {.epsilon = 1e-3, .momentum = 0.25, .l2_factor = 1, .learning_rate_factor = 0.5}),
        "norm");
  n.add(relu(), "relu");
  n.add_shared("norm", "norm_again");
  n.add(addition(), "sum", {"relu", "norm_again"});
  n.add(concatenation(), "both", {"sum", "relu"});
  n.add(clipped_relu({.ceiling = 0.5}), "clipped");
  n.add(leaky_relu({.scale = 0.125}), "leaky");
  n.add(elu({.alpha = 0.5}), "elu");
  n.add(gelu({.approximation = "tanh"}), "gelu");
  n.add(swish(), "swish");
  n.add(hard_swish(), "hard_swish");
  n.add(hard_sigmoid(), "hard_sigmoid");
  n.add(tanh(), "tanh");
  n.add(sigmoid(), "sigmoid");
  n.add(softplus(), "softplus");
  n.add(function_layer({.expression = "x * sigmoid(1.7 * x)"}), "function");
  n.add(layer_normalization({.epsilon = 1e-3, .l2_factor = 1, .learning_rate_factor = 0.5}),
        "layer_norm");
  n.add(instance_normalization({.epsilon = 1e-3, .l2_factor = 1, .learning_rate_factor = 0.5}),
        "instance_norm");
  n.add(group_normalization(
            {.groups = 4, .epsilon = 1e-3, .l2_factor = 1, .learning_rate_factor = 0.5}),
        "group_norm");
  n.add(channel_normalization({.epsilon = 1e-3, .l2_factor = 1, .learning_rate_factor = 0.5}),
        "channel_norm");
  n.add(layer_scale({.initial = 0.5, .l2_factor = 1, .learning_rate_factor = 0.5}), "layer_scale");
  n.add(squeeze_excitation({.units = 3,
                            .activation = "swish",
                            .gate = "hard_sigmoid",
                            .weights_l2_factor = 0.5,
                            .learning_rate_factor = 2}),
        "squeezed");
  n.add(stochastic_depth({.probability = 0.25}), "branch");
  n.add(upsampling2d({.scale = {1, 2}, .method = "bilinear"}), "larger");
  n.add(adaptive_average_pooling2d({.size = {5, 6}}), "areas");
  n.add(transposed_convolution2d({.filters = 16,
                                  .kernel = {3, 4},
                                  .stride = {2, 1},
                                  .padding = {false, 1, 0, 2, 1},
                                  .dilation = {1, 2},
                                  .groups = 4,
                                  .bias = true,
                                  .weights_initializer = "he",
                                  .bias_initializer = "ones",
                                  .weights_l2_factor = 0.5,
                                  .bias_l2_factor = 0.25,
                                  .weights_learning_rate_factor = 2,
                                  .bias_learning_rate_factor = 3}),
        "transposed");
  n.add(dropout({.probability = 0.125}), "drop");
  n.add(max_pooling2d({.pool = {2, 3}, .stride = {2, 1}, .padding = same_padding}), "max");
  n.add(average_pooling2d(
            {.pool = {3, 2}, .stride = {1, 2}, .padding = padding(1), .count_padding = false}),
        "average");
  n.add(pixels_to_steps(), "pixels");
  n.add(global_average_pooling2d(), "global", {"average"});
  n.add(flatten(), "flat");
  n.add(fully_connected({.units = 5,
                         .bias = false,
                         .weights_initializer = "orthogonal",
                         .bias_initializer = "narrow-normal",
                         .weights_l2_factor = 0,
                         .bias_l2_factor = 2,
                         .weights_learning_rate_factor = 0.5,
                         .bias_learning_rate_factor = 0}),
        "dense");
  n.add(feature_input({.features = 5, .normalization = "rescale-symmetric"}), "features");
  n.add(multiplication(), "product", {"dense", "features"});
  n.add(category_embedding({.first = {0, 3},
                            .categories = {2, 1},
                            .units = {3, 4},
                            .weights_initializer = "he",
                            .weights_l2_factor = 0.5,
                            .weights_learning_rate_factor = 2}),
        "categories", {"features"});
  n.add(outputs({.losses = {"mean_squared_error", "cross_entropy"}, .weights = {0.5, 2}}),
        "results", {"categories", "dense"});
  n.add(sequence_input({.channels = 4, .length = 30, .normalization = "none"}), "sequences");
  n.add(convolution1d({.filters = 6,
                       .kernel = 3,
                       .stride = 2,
                       .padding = {false, {2}, {1}},
                       .dilation = 2,
                       .groups = 2,
                       .bias = false,
                       .weights_initializer = "he",
                       .bias_initializer = "ones",
                       .weights_l2_factor = 0.5,
                       .bias_l2_factor = 0.25,
                       .weights_learning_rate_factor = 2,
                       .bias_learning_rate_factor = 3}),
        "conv1");
  n.add(max_pooling1d({.pool = 3, .stride = 2, .padding = Padding1d::all(1)}), "max1");
  n.add(average_pooling1d(
            {.pool = 3, .stride = 2, .padding = {.same = true}, .count_padding = false}),
        "average1");
  n.add(global_average_pooling1d(), "global1");
  n.add(image3d_input({.depth = 9, .height = 10, .width = 11, .channels = 2}), "volumes");
  n.add(convolution3d({.filters = 4,
                       .kernel = {3, 2, 1},
                       .stride = {1, 2, 1},
                       .padding = {false, {1, 0, 2}, {1, 1, 0}},
                       .dilation = {2, 1, 1},
                       .groups = 2,
                       .bias = false,
                       .weights_initializer = "he",
                       .bias_initializer = "ones",
                       .weights_l2_factor = 0.5,
                       .bias_l2_factor = 0.25,
                       .weights_learning_rate_factor = 2,
                       .bias_learning_rate_factor = 3}),
        "conv3");
  n.add(max_pooling3d({.pool = {2, 3, 2}, .stride = {2, 1, 1}, .padding = {.same = true}}), "max3");
  n.add(average_pooling3d({.pool = {2, 1, 3},
                           .stride = {1, 1, 2},
                           .padding = {false, {1, 0, 1}, {1, 0, 1}},
                           .count_padding = false}),
        "average3");
  n.add(global_average_pooling3d(), "global3");
  n.add(sequence_input({.channels = 3, .normalization = "none"}), "steps");
  n.add(convolution1d({.filters = 6, .kernel = 3, .causal = true}), "causal");
  n.add(lstm({.units = 4,
              .output = "sequence",
              .carry_state = true,
              .weights_initializer = "he",
              .recurrent_initializer = "glorot",
              .weights_l2_factor = 0.5,
              .learning_rate_factor = 2}),
        "lstm1");
  n.add(gru({.units = 4,
             .output = "sequence",
             .bidirectional = true,
             .weights_initializer = "he",
             .recurrent_initializer = "glorot",
             .weights_l2_factor = 0.5,
             .learning_rate_factor = 2,
             .reset_after = false}),
        "gru1");
  n.add(rnn({.units = 4,
             .output = "last",
             .weights_initializer = "he",
             .recurrent_initializer = "glorot",
             .weights_l2_factor = 0.5,
             .learning_rate_factor = 2,
             .activation = "relu"}),
        "rnn1");
  n.add(token_input({.vocabulary = 9}), "tokens");
  n.add(embedding({.vocabulary = 9,
                   .units = 4,
                   .weights_initializer = "he",
                   .weights_l2_factor = 0.5,
                   .weights_learning_rate_factor = 2}),
        "embedded");
  n.add(position_embedding(
            {.positions = 8, .weights_l2_factor = 0.5, .weights_learning_rate_factor = 2}),
        "placed");
  n.add(self_attention({.heads = 2, .causal = true, .bias = false, .dropout = 0.25}), "attention");
  n.add(
      transformer_block(
          {.heads = 4, .feed_forward_factor = 2, .causal = true, .dropout = 0.25, .epsilon = 1e-3}),
      "transformer");
  n.add(rms_normalization({.epsilon = 1e-3, .l2_factor = 0.5, .learning_rate_factor = 2}), "rms");
  n.add(last_step(), "last");
  n.add(reshape({.size = {5, 1, 1}}), "reshaped", {"product"});
  n.add(softmax(), "soft");
  n.add(denormalization({.normalization = "rescale-zero-one"}), "units");
  n.set_loss("mean_squared_error");
  return n;
}

TEST(NetworkJson, EveryRegisteredLayerComesBackAsItWas) {
  const Network network = everything();
  std::set<std::string> used, registered;
  for (const auto& node : network.layers()) used.insert(std::string(node.layer->type()));
  for (const auto& info : layer_registry()) registered.insert(info.type);
  EXPECT_EQ(used, registered) << "add the new layer to everything()";

  const auto text = network.to_json().dump();
  Network back = Network::from_json(json::parse(text));
  EXPECT_EQ(back.to_json().dump(), text);
  EXPECT_EQ(back.loss(), "mean_squared_error");
  EXPECT_EQ(back.summary(), network.summary());
  ASSERT_EQ(back.layers().size(), network.layers().size());
  for (size_t i = 0; i < back.layers().size(); ++i) {
    EXPECT_EQ(back.layers()[i].name, network.layers()[i].name);
    EXPECT_EQ(back.layers()[i].inputs, network.layers()[i].inputs);
    EXPECT_EQ(back.layers()[i].shares, network.layers()[i].shares);
  }
  Network original = network.clone();
  for (Network* const one : {&original, &back}) {
    one->initialize(4);
    for (const NetworkState& state : one->state()) {  // the inputs' statistics
      if (state.name.ends_with(".offset"))
        state.value.copy_from(Tensor::full(state.value.shape(), 1));
    }
  }
  std::vector<float> pixels(2 * 4 * 12 * 10);
  for (size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<float>((i * 37) % 256);
  const Tensor x = Tensor::from(pixels, {2, 4, 12, 10});
  const std::vector<float> values{1, -2, 3, 0.5, 4, 5, 6, 7, 8, 9};
  const Tensor features = Tensor::from(values, {2, 5});
  const std::vector<Tensor> all{x,
                                features,
                                Tensor::full({2, 4, 30}, 0.5f),
                                Tensor::full({2, 2, 9, 10, 11}, -2),
                                Tensor::full({2, 5, 3}, 0.25f),
                                Tensor::zeros({2, 7}, DType::i32)};
  const auto here = back.forward_all(all, {}), there = original.forward_all(all, {});
  ASSERT_EQ(here.size(), there.size());
  for (size_t i = 0; i < here.size(); ++i) EXPECT_EQ(here[i].to_vector(), there[i].to_vector());
}

// A field that visit() omits would be read back as its default.
TEST(NetworkJson, NoFieldOfTheFilledLayersIsADefault) {
  const Network network = everything();
  for (const auto& node : network.layers()) {
    if (node.layer->type() == "image_input" || !node.shares.empty()) continue;
    const auto written = write_layer(*node.layer);
    bool registered = false;
    for (const auto& info : layer_registry()) {
      if (info.type != node.layer->type()) continue;
      registered = true;
      EXPECT_EQ(written.size(), info.fields.size() + 1) << info.type;
      for (const auto& field : info.fields) {
        if (info.type == "fully_connected" || !written.contains(field.name)) continue;
        EXPECT_FALSE(field.help.empty()) << info.type << "." << field.name;
      }
    }
    EXPECT_TRUE(registered) << node.layer->type();
  }
}

std::string error_of(const char* text) {
  try {
    Network::from_json(json::parse(text));
  } catch (const InvalidArgument& error) {
    return std::string(error.what()) + " | " + error.hint();
  }
  return "nothing was thrown";
}

TEST(NetworkJson, WhatIsWrongIsNamedWithItsPlace) {
  const auto expect = [](const char* text, const std::vector<std::string>& words) {
    const std::string error = error_of(text);
    for (const auto& word : words) {
      EXPECT_NE(error.find(word), std::string::npos) << "no `" << word << "` in: " << error;
    }
  };
  expect(R"({"layers": 3})", {"layers"});
  expect(R"([])", {"layers"});
  expect(R"({"layers": [7]})", {"layer 1"});
  expect(R"({"layers": [{"type": "relu"}, {"type": "rellu"}]})",
         {"layer 2", "`rellu`", "did you mean `relu`"});
  expect(R"({"layers": [{"name": "x"}]})", {"layer 1", "type"});
  expect(R"({"layers": [{"type": "convolution2d", "filters": 4, "kernell": 3}]})",
         {"layer 1", "kernell", "`kernel`"});
  expect(R"({"layers": [{"type": "convolution2d", "filters": 0}]})", {"layer 1", "filters", "0"});
  expect(R"({"layers": [{"type": "convolution2d"}]})", {"layer 1", "filters"});
  expect(R"({"layers": [{"type": "relu", "inputs": 3}]})", {"layer 1", "inputs"});
  expect(R"({"layers": [{"type": "relu", "inputs": [3]}]})", {"layer 1", "inputs"});
  expect(R"({"layers": [{"type": "relu", "name": 3}]})", {"layer 1", "name"});
  expect(R"({"layers": [{"type": "relu", "name": "a"}, {"type": "relu", "name": "a"}]})", {"`a`"});
  expect(R"({"layers": [{"type": "relu", "name": "a"}, {"type": "shared", "layer": "b"}]})",
         {"`b`"});
  expect(R"({"layers": [{"type": "relu", "name": "a"},
                        {"type": "shared", "layer": "a", "filters": 3}]})",
         {"layer 2", "filters"});
  expect(R"({"layers": [], "loss": "hinge"})", {"`hinge`"});
  expect(R"({"layers": [], "loss": 3})", {"loss"});
}

}  // namespace
}  // namespace lockstep
