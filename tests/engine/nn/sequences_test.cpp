// Networks of sequences of different lengths: layers applied to each step, layers that take whole
// sequences, lengths, predictions.
#include "lockstep/engine/nn/inputs/sequences.h"

#include <gtest/gtest.h>

#include <set>

#include "lockstep/base/error.h"
#include "lockstep/engine/nn/custom_layer.h"
#include "lockstep/engine/nn/layers.h"
#include "lockstep/engine/nn/loss.h"
#include "lockstep/engine/nn/network.h"
#include "lockstep/engine/plan/plan.h"
#include "tests/data/support.h"
#include "tests/engine/ops/harness.h"

namespace lockstep {
namespace {

using testing::expect_says;
using testing::message_of;

// The sum over the valid steps of a sequence.
struct SumOfSteps {
  static constexpr const char* kType = "sum_of_steps";
  static constexpr const char* kHelp = "the sum over the steps of a sequence";
  static constexpr bool kTakesSequences = true;
  void visit(FieldVisitor&) {}
  Value build(LayerBuilder& layer, Value x) const {
    const Value length = ops::astype(layer.lengths(x), DType::f32);
    const Value step = ops::arange(length, 0, static_cast<double>(x.shape()[1]));
    const Value valid = ops::expand_dims(ops::less(step, ops::expand_dims(length, 1)), 2);
    return ops::sum(ops::where(valid, x, 0), {1});
  }
};

// The running sum, which is a sequence again.
struct RunningSum {
  static constexpr const char* kType = "running_sum";
  static constexpr const char* kHelp = "the sum over the steps until now";
  static constexpr bool kTakesSequences = true;
  void visit(FieldVisitor&) {}
  Value build(LayerBuilder&, Value x) const { return ops::cumsum(x, 1); }
};

// A rule of a state where each step is an observation: steps after the ends would count.
struct FollowedStep {
  static constexpr const char* kType = "followed_step";
  static constexpr const char* kHelp = "follows the mean of all steps";
  void visit(FieldVisitor&) {}
  Value build(LayerBuilder& layer, Value x) const {
    layer.follow_mean(layer.state("mean", Shape{x.shape()[1]}), ops::mean(x, {0}));
    return x;
  }
};

Tensor lengths_of(const std::vector<int32_t>& lengths) {
  return Tensor::from(std::span(lengths), {static_cast<int64_t>(lengths.size())});
}

// n x steps x channels of different numbers.
Tensor numbers(const Shape& shape, float first = 0) {
  std::vector<float> values;
  for (int64_t i = 0; i < shape.elements(); ++i) {
    values.push_back(first + 0.25f * static_cast<float>((i * 7) % 31) - 3);
  }
  return Tensor::from(std::span<const float>(values), shape);
}

Network tagger() {
  Network network{sequence_input({.channels = 3, .normalization = "none"}),
                  custom_layer(RunningSum{}),
                  fully_connected({.units = 5}),
                  tanh(),
                  fully_connected({.units = 4}),
                  softmax()};
  network.initialize(1);
  return network;
}

Network classifier() {
  Network network{sequence_input({.channels = 3, .normalization = "none"}),
                  fully_connected({.units = 5}), relu(), custom_layer(SumOfSteps{}),
                  fully_connected({.units = 2})};
  network.initialize(1);
  return network;
}

TEST(Sequences, HaveAFewCapacities) {
  EXPECT_EQ(steps_capacity(0), 1);
  for (const int64_t exact : {1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 32, 40, 1024}) {
    EXPECT_EQ(steps_capacity(exact), exact);
  }
  EXPECT_EQ(steps_capacity(9), 10);
  EXPECT_EQ(steps_capacity(33), 40);
  EXPECT_EQ(steps_capacity(500), 512);
  std::set<int64_t> all;
  for (int64_t longest = 1; longest <= 4096; ++longest) {
    all.insert(steps_capacity(longest));
    EXPECT_GE(steps_capacity(longest), longest);
    EXPECT_LE(steps_capacity(longest) * 4, longest * 5);
  }
  EXPECT_LE(all.size(), 44u);
}

TEST(Sequences, KnowTheirSizes) {
  const Network network = tagger();
  const NetworkValue input = network.inputs().at(0), output = network.outputs().at(0);
  EXPECT_TRUE(input.sequence);
  EXPECT_EQ(input.to_string(), "steps x 3");
  EXPECT_TRUE(output.sequence);
  EXPECT_EQ(output.shape, Shape{4});
  EXPECT_EQ(network.input_shapes(), std::vector<Shape>{{3}});
  EXPECT_FALSE(classifier().outputs().at(0).sequence);
  expect_says(network.summary(), "steps x 4");
  Network tokens{token_input({.vocabulary = 7})};
  EXPECT_EQ(tokens.inputs().at(0).type, DType::i32);
  EXPECT_EQ(tokens.inputs().at(0).to_string(), "steps");
}

TEST(Sequences, ApplyLayersToEachStep) {
  Network network = tagger();
  const Tensor x = numbers({2, 4, 3});
  const Tensor y = network.forward({x});
  ASSERT_EQ(y.shape(), (Shape{2, 4, 4}));
  // The same by hand.
  const Tensor rows = ops::cumsum(x, 1).reshaped({8, 3});
  const Tensor hidden =
      ops::tanh(ops::fully_connected(rows, network.parameter("fully_connected_1.weights"),
                                     network.parameter("fully_connected_1.bias")));
  const Tensor wanted =
      ops::softmax(ops::fully_connected(hidden, network.parameter("fully_connected_2.weights"),
                                        network.parameter("fully_connected_2.bias")));
  EXPECT_EQ(y.reshaped({8, 4}).to_vector(), wanted.to_vector());
}

TEST(Sequences, IgnoreWhatFollowsTheirEnd) {
  Network network = classifier();
  const Tensor x = numbers({3, 4, 3});
  const Tensor short_x = numbers({3, 4, 3}).clone();
  const std::vector<int32_t> lengths{4, 2, 0};
  for (int64_t i = 0; i < 3; ++i) {
    float* const row = short_x.data<float>() + i * 12;
    std::fill(row + lengths[static_cast<size_t>(i)] * 3, row + 12, 77.0f);
  }
  const auto options = ForwardOptions{.lengths = {lengths_of(lengths)}};
  EXPECT_EQ(network.forward({x}, options).to_vector(),
            network.forward({short_x}, options).to_vector());
}

TEST(Sequences, ArePredictedEachByItsOwnLength) {
  Network network = classifier();
  std::vector<int32_t> lengths;
  for (int32_t i = 0; i < 40; ++i) lengths.push_back((i * 5) % 13);
  const Tensor x = numbers({40, 12, 3});
  const Tensor all = network.predict(x, lengths_of(lengths));
  for (int64_t i = 0; i < 40; ++i) {
    // The row alone, without padding or with more of it.
    const int64_t own = lengths[static_cast<size_t>(i)];
    for (const int64_t steps : {std::max<int64_t>(own, 1), int64_t{30}}) {
      const Tensor alone = Tensor::full({1, steps, 3}, -5);
      std::copy_n(x.data<float>() + i * 36, own * 3, alone.data<float>());
      const Tensor one = network.predict(alone, lengths_of({static_cast<int32_t>(own)}));
      EXPECT_EQ(one.to_vector(),
                (std::vector<float>{all.data<float>()[2 * i], all.data<float>()[2 * i + 1]}));
    }
  }
  const Tensor steps = tagger().predict(x, lengths_of(lengths));
  EXPECT_EQ(steps.shape(), (Shape{40, 12, 4}));
  EXPECT_EQ(steps.data<float>()[0], 0) << "observation 1 has no steps";
  EXPECT_GT(steps.data<float>()[48], 0);
}

TEST(Sequences, HaveGradients) {
  Network network = classifier();
  const Tensor x = numbers({2, 4, 3});
  const ForwardOptions options{.lengths = {lengths_of({4, 1})}};
  Tape tape;
  tape.watch(x);
  const Tensor loss = ops::sum(network.forward({x}, options));
  const Tensor gradient = tape.gradient(loss, {x})[0];
  for (int64_t i = 0; i < 24; ++i) {
    if (i >= 15) {
      EXPECT_EQ(gradient.data<float>()[i], 0) << i;
    }
  }
  // Beside a difference.
  const auto value = [&](int64_t i, float step) {
    const Tensor moved = x.clone();
    moved.data<float>()[i] += step;
    return ops::sum(network.forward({moved}, options)).item();
  };
  for (const int64_t i : {0, 5, 11, 12, 14}) {
    const float difference = (value(i, 0.01f) - value(i, -0.01f)) / 0.02f;
    EXPECT_NEAR(gradient.data<float>()[i], difference, 0.02) << i;
  }
}

TEST(Sequences, HaveALossThatCountsValidSteps) {
  for (const std::string loss :
       {"cross_entropy", "mean_squared_error", "cross_entropy(output, target) * 1",
        "mean(abs(output - target))"}) {
    Graph graph;
    const bool labels = takes_labels(loss);
    const int x = graph.add_input({2, 3, 4}, DType::f32);
    const int lengths = graph.add_input({2}, DType::i32);
    const LossValues made = add_loss(graph, loss, LoweredValue{x, lengths});
    EXPECT_EQ(graph.shape(made.target), labels ? (Shape{2, 3}) : (Shape{2, 3, 4})) << loss;
    graph.mark_output(made.loss);
    // Alone, each step is an observation.
    Graph steps;
    const LossValues each = add_loss(steps, loss, steps.add_input({6, 4}, DType::f32));
    steps.mark_output(each.loss);
    PackedParameters none({});
    const auto run = [&](const Graph& of, bool sequences) {
      PlanRun plan(std::make_shared<Plan>(of, std::vector<Shape>{}, PlanOptions{}), none, {});
      auto* const values = static_cast<float*>(plan.input(0));
      for (int i = 0; i < 24; ++i) values[i] = 0.05f + 0.03f * static_cast<float>((i * 5) % 13);
      if (sequences) {
        static_cast<int32_t*>(plan.input(1))[0] = 3;
        static_cast<int32_t*>(plan.input(1))[1] = 1;
      }
      void* const target = plan.input(sequences ? 2 : 1);
      for (int i = 0; i < (labels ? 6 : 24); ++i) {
        if (labels) {
          static_cast<int32_t*>(target)[i] = i % 4;
        } else {
          static_cast<float*>(target)[i] = 0.1f * static_cast<float>(i % 7);
        }
      }
      plan.forward({});
      return std::vector<float>(plan.output(0), plan.output(0) + (sequences ? 2 : 6));
    };
    const std::vector<float> sums = run(graph, true), losses = run(steps, false);
    EXPECT_FLOAT_EQ(sums[0], losses[0] + losses[1] + losses[2]) << loss;
    EXPECT_EQ(sums[1], losses[3]) << loss;
  }
}

TEST(Sequences, RefuseWhatDoesNotFit) {
  Network network = classifier();
  const Tensor x = numbers({2, 4, 3});
  expect_says(message_of<InvalidArgument>([&] {
                network.forward({numbers({2, 3})});
              }),
              "n x steps x 3 of f32");
  expect_says(
      message_of<InvalidArgument>([&] {
        network.forward({x}, {.lengths = {lengths_of({5, 1})}});
      }),
      "observation 1 of the input `sequence_input_1` has 4 steps, but its length is given as 5");
  expect_says(message_of<InvalidArgument>([&] {
                network.forward({x}, {.lengths = {lengths_of({-1, 1})}});
              }),
              "given as -1");
  expect_says(
      message_of<InvalidArgument>([&] { network.forward({x}, {.lengths = {lengths_of({1})}}); }),
      "must be 2 numbers of i32");
  Network follows{sequence_input({.channels = 3}), custom_layer(FollowedStep{})};
  expect_says(message_of<InvalidArgument>([&] { follows.check(); }), "applied to each step");
  Network mixed;
  mixed.add(sequence_input({.channels = 3}), "steps");
  mixed.add(feature_input({.features = 3}), "features");
  mixed.add(addition(), "sum", {"steps", "features"});
  expect_says(message_of<InvalidArgument>([&] { mixed.check(); }), "input 2 is not");
}

// Only the longest sequences were compared.
TEST(Sequences, AreNotCombinedWithOthersOfOtherLengths) {
  Network network;
  network.add(sequence_input({.channels = 3, .normalization = "none"}), "p");
  network.add(sequence_input({.channels = 3, .normalization = "none"}), "q");
  network.add(gru({.units = 2}), "states", {"q"});
  network.add(concatenation(), "both", {"p", "states"});
  network.initialize(1);
  const Tensor x = numbers({2, 4, 3});
  const auto run = [&](const std::vector<int32_t>& p, const std::vector<int32_t>& q,
                       std::vector<std::string> outputs = {}) {
    network.forward({x, x}, {.outputs = outputs, .lengths = {lengths_of(p), lengths_of(q)}});
  };
  run({4, 2}, {4, 2});
  run({4, 2}, {2, 4}, {"states"});
  expect_says(message_of<InvalidArgument>([&] {
                run({4, 2}, {4, 3});
              }),
              "[both] its inputs are sequences of different lengths: observation 2 has 2 steps in "
              "`p`, but 3 in `q`");
}

// Its parameter grows with the sequence.
struct PositionWeights {
  static constexpr const char* kType = "position_weights";
  static constexpr const char* kHelp = "a weight for each step";
  static constexpr bool kTakesSequences = true;
  void visit(FieldVisitor&) {}
  Value build(LayerBuilder& layer, Value x) const {
    return x * layer.parameter("weights", {x.shape()[1], 1}, "ones");
  }
};

TEST(Sequences, RefuseParametersThatDependOnTheSteps) {
  Network network{sequence_input({.channels = 3}), custom_layer(PositionWeights{})};
  expect_says(message_of<InvalidArgument>([&] { network.check(); }),
              "depend on the number of steps");
}

}  // namespace
}  // namespace lockstep
