// Results of inner layers, unchanged states, and forward runs of several threads at once.
#include <gtest/gtest.h>

#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/engine/nn/layers.h"
#include "lockstep/engine/nn/lowering.h"
#include "lockstep/engine/nn/network.h"
#include "lockstep/engine/ops/ops.h"
#include "lockstep/engine/plan/plan.h"
#include "tests/engine/ops/harness.h"

namespace lockstep {
namespace {

Tensor images(int64_t n, uint64_t seed) {
  return optest::tensor_of(optest::random_array({n, 3, 8, 8}, seed, -1, 1));
}

Network network() {
  Network n;
  n.add(image_input({.height = 8, .width = 8, .channels = 3, .normalization = "none"}));
  n.add(convolution2d({.filters = 16, .kernel = {3, 3}, .padding = same_padding}));
  n.add(batch_normalization(), "norm");
  n.add(relu());
  n.add(fully_connected({.units = 10}), "logits");
  n.add(softmax(), "scores");
  n.add(fully_connected({.units = 3}), "side", {"norm"});
  n.initialize(3);
  return n;
}

TEST(NetworkOutputs, OfInnerLayers) {
  Network n = network();
  const Tensor x = images(5, 1);
  const auto usual = n.forward_all({x}, {});
  ASSERT_EQ(usual.size(), 2u);  // scores and side
  const auto wanted = n.forward_all({x}, {.outputs = {"side", "logits"}});
  ASSERT_EQ(wanted.size(), 2u);
  EXPECT_EQ(wanted[0].to_vector(), usual[1].to_vector());
  EXPECT_EQ(ops::softmax(wanted[1]).to_vector(), usual[0].to_vector());
  EXPECT_THROW(n.forward({x}, {.outputs = {"logit"}}), InvalidArgument);
  EXPECT_THROW(n.forward({x}, {.outputs = {"logits", "logits"}}), InvalidArgument);
}

TEST(NetworkInputs, HaveAsManyRowsAndTheMessageSaysSo) {
  Network n;
  n.add(image_input({.height = 2, .width = 2, .channels = 1, .normalization = "none"}), "a");
  n.add(image_input({.height = 2, .width = 2, .channels = 1, .normalization = "none"}), "b");
  n.add(addition(), "sum", {"a", "b"});
  n.initialize(1);
  const Shape shape{3, 1, 2, 2};
  try {
    n.forward({Tensor::zeros(shape, DType::u8), Tensor::zeros({2, 1, 2, 2})});
    FAIL() << "accepted";
  } catch (const InvalidArgument& e) {
    EXPECT_STREQ(e.what(),
                 "[network] input 2 must be n x 1x2x2 of f32 or u8, where n is the batch "
                 "size of input 1 (3), received 2x1x2x2 f32");
  }
  // Types may differ: pixels beside features.
  const std::vector<uint8_t> pixels(12, 7);
  const Tensor ones = Tensor::full(shape, 1);
  const Tensor mixed = n.forward({Tensor::from(std::span(pixels), shape), ones});
  EXPECT_EQ(mixed.to_vector(), n.forward({Tensor::full(shape, 7), ones}).to_vector());
  EXPECT_EQ(mixed.to_vector()[0], 8);
}

TEST(NetworkOutputs, LeaveInputsAloneOnWhichTheyDoNotDepend) {
  Network n;
  n.add(feature_input({.features = 3, .normalization = "none"}), "a");
  n.add(fully_connected({.units = 2}), "of_a", {"a"});
  n.add(feature_input({.features = 4, .normalization = "none"}), "b", {});
  n.add(fully_connected({.units = 2}), "of_b", {"b"});
  n.initialize(0);
  const LoweredNetwork lowered = n.lower(5, {.outputs = {"of_b"}});
  EXPECT_EQ(lowered.inputs.size(), 2u);
  for (const auto& node : lowered.graph.nodes()) EXPECT_NE(node.name, "a");
  const Tensor nothing = Tensor::zeros({5, 3}), b = Tensor::full({5, 4}, 1);
  EXPECT_EQ(n.forward({nothing, b}, {.outputs = {"of_b"}}).to_vector(),
            n.forward_all({nothing, b}, {})[1].to_vector());
}

// A result that another result depends on gets the derivatives of both.
TEST(NetworkOutputs, HaveGradients) {
  Network n = network();
  const Tensor x = images(5, 1);
  const auto values = n.parameter_values();
  const auto gradient = [&](const std::vector<std::string>& names, const auto& loss) {
    Tape tape;
    tape.watch(values);
    return tape.gradient(loss(n.forward_all({x}, {.outputs = names})), values);
  };
  const auto square = [](const Tensor& t) { return ops::sum(ops::multiply({t, t})); };
  const auto logits = gradient({"logits"}, [&](const auto& out) { return square(out[0]); });
  const auto scores = gradient({"scores"}, [&](const auto& out) { return square(out[0]); });
  const auto both = gradient({"logits", "scores"}, [&](const auto& out) {
    return ops::add({square(out[0]), square(out[1])});
  });
  for (size_t p = 0; p < values.size(); ++p) {
    const auto sum = ops::add({logits[p], scores[p]});
    const auto a = optest::array_of(both[p]), b = optest::array_of(sum);
    if (n.parameters()[p].name.starts_with("side")) {
      for (float v : both[p].to_vector()) EXPECT_EQ(v, 0);
    } else {
      EXPECT_LT(optest::relative_error(a, b), 1e-5) << n.parameters()[p].name;
    }
  }
}

// d score / d feature map, as for Grad-CAM: the score by the following layers, also computed by
// ops.
TEST(NetworkOutputs, HaveGradientsWithRespectToEachOther) {
  Network n = network();
  const Tensor x = images(5, 1), w = n.parameter("logits.weights"), b = n.parameter("logits.bias");
  const std::string map = "relu_1";
  Tensor expected, expected_weights, norm_expected;
  {
    Tape tape;
    tape.watch(n.parameter_values());
    const auto values = n.forward_all({x}, {.outputs = {"norm"}});
    const Tensor h = ops::relu(values[0]);
    const Tensor logits = ops::fully_connected(h, w, b);
    const Tensor score = ops::sum(ops::multiply({logits, logits}));
    const auto found = tape.gradient(score, {h, w, values[0]});
    expected = found[0], expected_weights = found[1], norm_expected = found[2];
  }
  for (const std::vector<std::string>& names :
       {std::vector<std::string>{map, "logits"}, {"logits", map}, {"norm", "logits", map}}) {
    Tape tape;
    tape.watch(n.parameter_values());
    const auto out = n.forward_all({x}, {.outputs = names});
    const auto at = [&](const std::string& name) {
      return out[static_cast<size_t>(std::find(names.begin(), names.end(), name) - names.begin())];
    };
    const Tensor& h = at(map);
    const Tensor score = ops::sum(ops::multiply({at("logits"), at("logits")}));
    const auto same = [](const Tensor& p, const Tensor& q) {
      return optest::relative_error(optest::array_of(p), optest::array_of(q)) < 1e-5;
    };
    EXPECT_TRUE(same(tape.gradient(score, {h})[0], expected));
    const auto all = tape.gradient(score, {w, h, at("logits")});
    EXPECT_TRUE(same(all[0], expected_weights));
    EXPECT_TRUE(same(all[1], expected));
    if (names.size() == 3) {
      EXPECT_TRUE(same(tape.gradient(score, {at("norm")})[0], norm_expected));
      // Through the layers between, and through an op of the loss.
      const Tensor both = ops::add({score, ops::sum(h)});
      const auto sum = ops::add({expected, Tensor::full(expected.shape(), 1)});
      EXPECT_TRUE(same(tape.gradient(both, {h})[0], sum));
      // Earlier layers do not depend on a later result.
      for (float v : tape.gradient(ops::sum(h), {at("logits")})[0].to_vector()) EXPECT_EQ(v, 0);
    }
  }
  Tape tape;
  tape.watch(n.parameter_values());
  const Tensor predicted = ops::sum(n.predict(x));
  EXPECT_THROW(tape.gradient(predicted, {w}), InvalidArgument);
}

TEST(NetworkState, StaysUnchangedOnRequest) {
  Network n = network();
  const auto before = n.state_value("norm.mean").to_vector();
  const Tensor x = images(5, 1);
  const Tensor kept = n.forward({x}, {.training = true, .update_state = false});
  EXPECT_EQ(n.state_value("norm.mean").to_vector(), before);
  EXPECT_EQ(n.forward({x}, {.training = true}).to_vector(), kept.to_vector());
  EXPECT_NE(n.state_value("norm.mean").to_vector(), before);
}

TEST(NetworkForward, RunsInSeveralThreadsAtOnce) {
  Network n = network();
  std::vector<Tensor> inputs;
  std::vector<std::vector<float>> expected;
  Network alone = n.clone();
  for (int64_t k = 0; k < 12; ++k) {
    inputs.push_back(images(1 + k % 4, static_cast<uint64_t>(k)));
    expected.push_back(alone.predict(inputs.back()).to_vector());
  }
  for (int round = 0; round < 3; ++round) {
    std::vector<std::vector<float>> found(inputs.size());
    std::vector<std::thread> threads;
    for (size_t t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        for (size_t k = t; k < inputs.size(); k += 4) found[k] = n.predict(inputs[k]).to_vector();
      });
    }
    for (auto& thread : threads) thread.join();
    EXPECT_EQ(found, expected);
    // With new values, the copies that kernels read are made again.
    n.initialize(static_cast<uint64_t>(round));
    alone.initialize(static_cast<uint64_t>(round));
    for (size_t k = 0; k < inputs.size(); ++k) {
      expected[k] = alone.predict(inputs[k]).to_vector();
    }
  }
}

// Copies for a new plan between two changes must not count as copies of the old values.
TEST(NetworkForward, FollowsParametersThatChangeAndChangeBack) {
  Network n = network();
  const Tensor weights = n.parameter("convolution2d_1.weights");
  const Tensor one = images(1, 1), five = images(5, 2);
  const auto before = n.predict(one).to_vector();
  const Tensor kept = weights.clone();
  weights.copy_from(Tensor::full(weights.shape(), 0.5f));
  PlanOptions options;
  LoweredNetwork lowered = n.lower(5, {});
  for (int value : lowered.outputs) lowered.graph.mark_output(value);
  const PlanRun run(std::make_shared<Plan>(lowered.graph, n.parameter_shapes(), options),
                    n.packed(), n.state_pointers());
  weights.copy_from(kept);
  EXPECT_EQ(n.predict(one).to_vector(), before);
  EXPECT_EQ(n.predict(five).to_vector(), n.clone().predict(five).to_vector());
  n.packed().pack(0);
  weights.copy_from(Tensor::full(weights.shape(), 0.5f));
  n.packed().pack(0);
  weights.copy_from(kept);
  EXPECT_EQ(n.predict(one).to_vector(), before);
}

}  // namespace
}  // namespace lockstep
