#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/engine/kernels/backends/table.h"
#include "lockstep/engine/nn/custom_layer.h"
#include "lockstep/engine/nn/layers.h"
#include "lockstep/engine/nn/network.h"
#include "lockstep/engine/ops/op_makers.h"
#include "tests/engine/ops/harness.h"

namespace lockstep {
namespace {

using optest::array_of;
using optest::random_array;
using optest::refusal_of;
using optest::relative_error;
using optest::tensor_of;

// Squeeze and excitation, without the squeeze: x times the sigmoid of a map of its channels.
struct ChannelGate {
  static constexpr const char* kType = "channel_gate";
  static constexpr const char* kHelp = "lets through what its gate says";
  double probability = 0;
  void visit(FieldVisitor& v) { v.number("probability", probability, "of dropout", {.min = 0}); }
  Value build(LayerBuilder& layer, Value x) const {
    const int64_t c = x.shape()[1];
    const Value weights = layer.parameter("weights", {c, c, 1, 1});
    const Value bias = layer.parameter("bias", {c}, "ones");
    return x * ops::sigmoid(ops::convolution2d(x, weights, bias)) + x;
  }
};

struct Relu2 : ChannelGate {
  static constexpr const char* kType = "relu";
};

// Collects statistics by all rules. Returns its first input.
struct Meter {
  static constexpr const char* kType = "meter";
  static constexpr const char* kHelp = "keeps statistics";
  void visit(FieldVisitor&) {}
  Value build(LayerBuilder& layer, const std::vector<Value>& x) const {
    const Value sum = ops::sum(x[0]);
    layer.add_sum(layer.state("sum", {}), sum);
    layer.keep_maximum(layer.state("largest", {}, -100), sum);
    layer.follow_mean(layer.state("mean", {}, 1), ops::mean(x[0]), 0.5);
    layer.state("fixed", {3}, 7);
    return x[0];
  }
};

Network gated(double probability = 0) {
  Network n{image_input({.height = 4, .width = 3, .channels = 2, .normalization = "none"}),
            custom_layer(ChannelGate{probability}), fully_connected({.units = 3}), softmax()};
  n.initialize(3);
  return n;
}

// Reads a state and parameters in other layouts and in bf16.
struct Filters {
  static constexpr const char* kType = "filters";
  static constexpr const char* kHelp = "filters of parameters and of a state";
  void visit(FieldVisitor&) {}
  Value build(LayerBuilder& layer, Value x) const {
    const Shape shape{16, 16, 3, 3};
    const ops::Convolution2dParams params{.padding = same_padding};
    const Value sum = layer.parameter("a", shape) + layer.parameter("b", shape);
    const Value positive = ops::relu(sum);
    x = ops::convolution2d(x, positive, {}, params);
    const Value fixed = layer.state("fixed", shape, 0.01f);
    return ops::convolution2d(x, fixed, {}, params);
  }
};

TEST(CustomLayer, StatesAndParametersMayBeFilters) {
  Network n{image_input({.height = 6, .width = 5, .channels = 16, .normalization = "none"}),
            custom_layer(Filters{})};
  n.initialize(3);
  const Tensor x = tensor_of(random_array({9, 16, 6, 5}, 1));
  const optest::Array weights = random_array({9, 16, 6, 5}, 2);
  const std::vector<Tensor> parameters = n.parameter_values();
  const auto run = [&](bool as_layer, DType precision) {
    Tape tape;
    tape.watch(parameters);
    Tensor y;
    if (as_layer) {
      y = n.forward({x}, {.training = true, .precision = precision});
    } else {
      const ops::Convolution2dParams params{.padding = same_padding};
      const Tensor positive = ops::relu(ops::add({parameters[0], parameters[1]}));
      y = ops::convolution2d(x, positive, {}, params);
      y = ops::convolution2d(y, n.state_value("filters_1.fixed"), {}, params);
    }
    auto all = tape.gradient(optest::weighted_sum(y, weights), parameters);
    all.push_back(y);
    return all;
  };
  const auto expected = run(false, DType::f32), planned = run(true, DType::f32);
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_LE(relative_error(array_of(planned[i]), array_of(expected[i])), 1e-5) << i;
  }
  if (!kernels::table_for({}).bf16) GTEST_SKIP() << "no bf16 instructions";
  const auto narrow = run(true, DType::bf16);
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(narrow[i].dtype(), DType::f32);
    EXPECT_LE(relative_error(array_of(narrow[i]), array_of(expected[i])), 5e-2) << i;
  }
}

// The gradient uses the values that forward has read, whatever ran in between.
TEST(NetworkForward, StatesOfARunAreThoseOfItsBeginning) {
  Network n{image_input({.height = 6, .width = 5, .channels = 3, .normalization = "none"}),
            convolution2d({.filters = 4, .kernel = {3, 3}}), batch_normalization(),
            fully_connected({.units = 2})};
  n.initialize(3);
  const Tensor x = tensor_of(random_array({9, 3, 6, 5}, 1));
  const optest::Array weights = random_array({9, 2}, 2);
  const auto gradients = [&](bool train_between) {
    Network copy = n.clone();
    const std::vector<Tensor> parameters = copy.parameter_values();
    Tape tape;
    tape.watch(parameters);
    const Tensor y = copy.forward({x});
    if (train_between) copy.forward({x}, {.training = true, .record = false});
    std::vector<std::vector<float>> values;
    for (const Tensor& g : tape.gradient(optest::weighted_sum(y, weights), parameters)) {
      values.push_back(g.to_vector());
    }
    return values;
  };
  EXPECT_EQ(gradients(true), gradients(false));
}

TEST(CustomLayer, ComputesWhatItsOpsDo) {
  Network n = gated();
  EXPECT_EQ(n.parameter("channel_gate_1.weights").shape(), (Shape{2, 2, 1, 1}));
  EXPECT_EQ(n.parameters()[0].spec.fan_in, 2);
  const Tensor x = tensor_of(random_array({5, 2, 4, 3}, 1, -1, 1));
  const Tensor gate = ops::sigmoid(ops::convolution2d(x, n.parameter("channel_gate_1.weights"),
                                                      n.parameter("channel_gate_1.bias")));
  const Tensor y = ops::add({ops::multiply({x, gate}), x});
  const Tensor scores = ops::softmax(ops::fully_connected(
      y, n.parameter("fully_connected_1.weights"), n.parameter("fully_connected_1.bias")));
  EXPECT_LT(relative_error(array_of(n.predict(x)), array_of(scores)), 1e-6);
}

TEST(CustomLayer, HasTheGradientsOfCentralDifferences) {
  Network n = gated();
  const Tensor x = tensor_of(random_array({5, 2, 4, 3}, 1, -1, 1));
  const Tensor labels = Tensor::from(std::vector<int32_t>{0, 1, 2, 0, 1}, Shape{5});
  const auto loss_of = [&] { return ops::sum(ops::cross_entropy(n.forward({x}, {true}), labels)); };
  auto parameters = n.parameter_values();
  std::vector<Tensor> gradients;
  {
    Tape tape;
    tape.watch(parameters);
    gradients = tape.gradient(loss_of(), parameters);
  }
  for (size_t i = 0; i < parameters.size(); ++i) {
    optest::Array expected = array_of(parameters[i]), found = array_of(gradients[i]);
    for (int64_t k = 0; k < expected.count(); ++k) {
      float& at = parameters[i].data<float>()[k];
      const float before = at;
      constexpr float step = 1.0f / 64;
      at = before + step;
      const auto above = static_cast<double>(loss_of().item());
      at = before - step;
      const auto below = static_cast<double>(loss_of().item());
      at = before;
      expected[k] = (above - below) / (2 * static_cast<double>(step));
    }
    EXPECT_LT(relative_error(found, expected), 2e-3) << n.parameters()[i].name;
  }
}

TEST(CustomLayer, StateFollowsItsRules) {
  Network n{image_input({.height = 1, .width = 2, .channels = 1, .normalization = "none"}),
            custom_layer(Meter{}), softmax()};
  n.initialize(1);
  const auto state = [&](const char* name) {
    return n.state_value(std::string("meter_1.") + name).to_vector();
  };
  using Values = std::vector<float>;
  EXPECT_EQ(state("largest"), Values{-100});
  n.forward({Tensor::from(Values{1, 2, 3, 4}, Shape{2, 1, 1, 2})}, {.training = true});
  n.forward({Tensor::from(Values{-3, -1}, Shape{1, 1, 1, 2})}, {.training = true});
  n.predict(Tensor::from(Values{50, 60}, Shape{1, 1, 1, 2}));
  EXPECT_EQ(state("sum"), Values{6});
  EXPECT_EQ(state("largest"), Values{10});
  EXPECT_EQ(state("mean"), Values{0.5f * (0.5f * 1 + 0.5f * 2.5f) + 0.5f * -2});
  EXPECT_EQ(state("fixed"), (Values{7, 7, 7}));
}

TEST(CustomLayer, FilesKnowItOnceItIsRegistered) {
  const nlohmann::json written = gated(0.5).to_json();
  EXPECT_EQ(written["layers"][1]["type"], "channel_gate");
  EXPECT_NE(refusal_of([&] { Network::from_json(written); }).find("unknown layer type"),
            std::string::npos);
  register_layer<ChannelGate>();
  EXPECT_EQ(nlohmann::json(Network::from_json(written).to_json()), written);
  EXPECT_NE(refusal_of([] { register_layer<ChannelGate>(); }).find("channel_gate"),
            std::string::npos);
  EXPECT_NE(refusal_of([] { register_layer<Relu2>(); }).find("already"), std::string::npos);
}

// The batch normalization of features, as layers.h has it. Layers are built for one observation
// first, which has one value for each channel.
struct Normalized {
  static constexpr const char* kType = "normalized";
  static constexpr const char* kHelp = "normalizes features of all inputs together";
  static constexpr int kLeastInputs = 2;
  void visit(FieldVisitor&) {}
  Value build(LayerBuilder& layer, const std::vector<Value>& x) const {
    const Value both = ops::concat(x);
    const Shape c{both.shape()[1]};
    const Value scale = layer.parameter("scale", c, "ones");
    const Value shift = layer.parameter("shift", c, "zeros");
    const Value mean = layer.state("mean", c), variance = layer.state("variance", c, 1);
    if (!layer.training()) return ops::batch_normalization(both, scale, shift, mean, variance);
    const auto normalized = ops::batch_normalization_training(both, scale, shift);
    layer.follow_mean_and_variance(mean, variance, normalized.mean, normalized.variance);
    return normalized.y;
  }
};

TEST(CustomLayer, IsWrittenLikeTheLayersOfTheLibrary) {
  const auto trained = [](bool own) {
    Network n{feature_input({.features = 3, .normalization = "none"}),
              fully_connected({.units = 4})};
    if (own) {
      n.add(custom_layer(Normalized{}), "norm", {"feature_input_1", "fully_connected_1"});
    } else {
      n.add(concatenation(), "both", {"feature_input_1", "fully_connected_1"});
      n.add(batch_normalization(), "norm");
    }
    n.initialize(3);
    const Tensor x = tensor_of(random_array({5, 3}, 1));
    std::vector<Tensor> values = n.parameter_values();
    Tape tape;
    tape.watch(values);
    const Tensor y = n.forward({x}, {.training = true});
    const Tensor loss = optest::weighted_sum(y, random_array({5, 7}, 2));
    std::vector<Tensor> all = tape.gradient(loss, values);
    all.insert(all.end(), {y, n.state_value("norm.mean"), n.state_value("norm.variance"),
                           n.predict(tensor_of(random_array({2, 3}, 4)))});
    std::vector<std::vector<float>> elements;
    for (const Tensor& t : all) elements.push_back(t.to_vector());
    return elements;
  };
  EXPECT_EQ(trained(true), trained(false));
  Network one{feature_input({.features = 3, .normalization = "none"}), custom_layer(Normalized{})};
  EXPECT_NE(refusal_of([&] { one.check(); }).find("takes 2 or more inputs, has 1"),
            std::string::npos);
}

// ---- refused layers ----

template <int kind>
struct Bad {
  static constexpr const char* kType = "bad";
  static constexpr const char* kHelp = "";
  void visit(FieldVisitor&) {}
  Value build(LayerBuilder& layer, Value x) const {
    static int built = 0;  // undeclared state
    ++built;
    if constexpr (kind == 0) layer.parameter("w" + std::to_string(built), {1});
    if constexpr (kind == 1) layer.parameter("w", {built});
    if constexpr (kind == 2) {
      if (built % 2 == 0) return ops::tanh(x);
    }
    if constexpr (kind == 3) {
      layer.parameter("w", {1});
      layer.parameter("w", {1});
    }
    if constexpr (kind == 4)
      layer.parameter("w", {x.shape()[0]});  // depends on the number of observations
    if constexpr (kind == 5) layer.add_sum(x, x);
    if constexpr (kind == 6) {
      const Value state = layer.state("s", {}), sum = ops::sum(x);
      layer.add_sum(state, sum);
      layer.keep_maximum(state, sum);
    }
    if constexpr (kind == 7) layer.follow_mean(layer.state("s", {3}), x);
    if constexpr (kind == 8) {
      const Value sum = ops::sum(x);
      layer.follow_mean(layer.state("s", {}), sum, 1.5);
    }
    if constexpr (kind == 9) return ops::multiply({x, layer.state("s", {})});
    return x;
  }
};

template <int kind>
std::string refused() {
  return refusal_of([] {
    Network n{image_input({.height = 2, .width = 2, .channels = 1, .normalization = "none"}),
              custom_layer(Bad<kind>{})};
    n.initialize(1);
    for (int64_t rows : {3, 4}) n.forward({Tensor::zeros({rows, 1, 2, 2})}, {.record = false});
  });
}

TEST(CustomLayer, RefusesWhatCouldBreakTheLaw) {
  const auto expect = [](const std::string& message, const char* part) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  expect(refused<0>(), "requests the parameter `w");
  expect(refused<1>(), "an earlier build() did not request");
  expect(refused<2>(), "build() differs from an earlier call");
  expect(refused<3>(), "requests the parameter `w` twice");
  expect(refused<4>(), "requests the parameter `w` of 3");
  expect(refused<5>(), "a rule needs a state");
  expect(refused<6>(), "the state `s` has two rules");
  expect(refused<7>(), "a state of 3 cannot follow a value of 1x1x2x2");
  expect(refused<8>(), "momentum must be from 0 to 1");
  expect(refused<9>(), "[multiply]");
}

}  // namespace
}  // namespace lockstep
