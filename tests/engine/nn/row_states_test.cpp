// States by row of layers, in forward runs.
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/engine/nn/custom_layer.h"
#include "lockstep/engine/nn/layers.h"
#include "lockstep/engine/nn/lowering.h"
#include "lockstep/engine/nn/network.h"
#include "tests/data/support.h"
#include "tests/engine/ops/harness.h"

namespace lockstep {
namespace {

using testing::expect_says;
using testing::message_of;

// y = scale * (x + state); the next state is y.
struct Summing {
  static constexpr const char* kType = "summing";
  static constexpr const char* kHelp = "a sum over mini-batches";
  void visit(FieldVisitor&) {}
  Value build(LayerBuilder& layer, Value x) const {
    const Value scale = layer.parameter("scale", {1}, "ones");
    const Value state = layer.row_state("sum", x.shape().without_batch(), 0.5f);
    const Value y = scale * (x + state);
    layer.carry(state, y);
    return y;
  }
};

Network summing_network() {
  Network network{feature_input({.features = 2, .normalization = "none"}), custom_layer(Summing{})};
  network.initialize(1);
  return network;
}

Tensor two_rows() { return Tensor::from(std::vector<float>{1, 2, 3, 4}, {2, 2}); }

TEST(RowStates, BeginWithTheirInitialValuesUntilTheyAreMade) {
  Network network = summing_network();
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(network.forward({two_rows()}).to_vector(), (std::vector<float>{1.5, 2.5, 3.5, 4.5}));
  }
  EXPECT_TRUE(network.row_states().empty());
  network.make_row_states(3);
  EXPECT_EQ(network.forward({two_rows()}).to_vector(), (std::vector<float>{1.5, 2.5, 3.5, 4.5}));
  EXPECT_EQ(network.forward({two_rows()}).to_vector(), (std::vector<float>{2.5, 4.5, 6.5, 8.5}));
  EXPECT_EQ(network.row_states()[0].value.to_vector(),
            (std::vector<float>{2.5, 4.5, 6.5, 8.5, 0.5, 0.5}));
  EXPECT_EQ(network.predict(two_rows()).to_vector(), (std::vector<float>{1.5, 2.5, 3.5, 4.5}));
  EXPECT_EQ(network.forward({two_rows()}, {.carry = false}).to_vector()[0], 1.5f);
  Network copy = network.clone();
  network.reset_row_states();
  EXPECT_EQ(network.forward({two_rows()}).to_vector()[0], 1.5f);
  EXPECT_EQ(copy.forward({two_rows()}).to_vector()[0], 3.5f) << "the copy has its own";
  network.initialize(2);
  EXPECT_EQ(network.made_rows(), 3);
  EXPECT_EQ(network.row_states()[0].value.to_vector()[0], 0.5f) << "as new";
  network.make_row_states(3, false);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(network.forward({two_rows()}).to_vector()[0], 1.5f);
  network.make_row_states(0);
  EXPECT_EQ(network.forward({two_rows()}).to_vector()[0], 1.5f);
  ASSERT_EQ(network.row_state_shapes().size(), 1u);
  EXPECT_EQ(network.row_state_shapes()[0], (std::pair<std::string, Shape>("summing_1.sum", {2})));
}

// Names of layers are not taken for modes of a run.
TEST(RowStates, RunsForOtherOutputsHaveOtherPlans) {
  Network network;
  network.add(feature_input({.features = 2, .normalization = "none"}));
  network.add(custom_layer(Summing{}), "carry");
  network.add(fully_connected({.units = 1}));
  network.initialize(1);
  network.make_row_states(2);
  EXPECT_EQ(network.forward({two_rows()}).shape(), (Shape{2, 1}));
  const ForwardOptions of_layer{.carry = false, .outputs = {"carry"}};
  EXPECT_EQ(network.forward({two_rows()}, of_layer).to_vector(),
            (std::vector<float>{1.5, 2.5, 3.5, 4.5}));
}

// Of nested limits the strictest one applies, in both orders, and none after their ends.
TEST(RowStates, AreNotCarriedByLimitedRuns) {
  Network network = summing_network();
  network.make_row_states(2);
  const auto first = [&](bool carry) {
    return network.forward({two_rows()}, {.training = true, .carry = carry}).to_vector()[0];
  };
  {
    const LimitedForward refused(ForwardLimit::carry_refused);
    expect_says(message_of<InvalidArgument>([&] { first(true); }), "cannot carry states by row");
    EXPECT_EQ(first(false), 1.5f);
    {
      const LimitedForward predicts(ForwardLimit::predictions);
      for (int i = 0; i < 2; ++i) EXPECT_EQ(first(true), 1.5f);
    }
    EXPECT_THROW(first(true), InvalidArgument);
  }
  {
    const LimitedForward predicts(ForwardLimit::predictions);
    const LimitedForward refused(ForwardLimit::carry_refused), none(ForwardLimit::none);
    for (int i = 0; i < 2; ++i) EXPECT_EQ(first(true), 1.5f);
  }
  EXPECT_EQ(network.row_states()[0].value.to_vector()[0], 0.5f);
  EXPECT_EQ(first(true), 1.5f);
  EXPECT_EQ(first(true), 2.5f);
}

// A layer that is shared carries in each of its places; inputs keep their numbers.
TEST(RowStates, BelongToThePlacesOfALayer) {
  Network network;
  network.add(feature_input({.features = 2, .normalization = "none"}), "a");
  network.add(custom_layer(Summing{}), "first", {"a"});
  network.add(feature_input({.features = 2, .normalization = "none"}), "b");
  network.add_shared("first", "second", {"b"});
  network.add(addition(), "sum", {"first", "second"});
  network.initialize(1);
  network.make_row_states(2);
  const Tensor twice = two_rows() * 2.0;
  EXPECT_EQ(network.forward({two_rows(), twice}).to_vector(), (std::vector<float>{4, 7, 10, 13}));
  EXPECT_EQ(network.forward({two_rows(), twice}).to_vector(), (std::vector<float>{7, 13, 19, 25}));
  EXPECT_EQ(network.row_states()[0].name, "first.sum");
  EXPECT_EQ(network.row_states()[1].name, "second.sum");
  EXPECT_EQ(network.row_states()[1].value.to_vector(), (std::vector<float>{4.5, 8.5, 12.5, 16.5}));
}

// Derivatives of a run are those at the states that it has read, and end there.
TEST(RowStates, DerivativesEndAtWhatARunHasRead) {
  Network network = summing_network();
  network.make_row_states(2);
  Tape tape;
  tape.watch(network.parameter_values());
  const Tensor first = network.forward({two_rows()}, {.training = true});
  const Tensor second = network.forward({two_rows()}, {.training = true});
  // d sum(y) / d scale = sum(x + state).
  EXPECT_EQ(tape.gradient(ops::sum(second), network.parameter_values())[0].item(),
            10 + 1.5f + 2.5f + 3.5f + 4.5f);
  EXPECT_EQ(tape.gradient(ops::sum(first), network.parameter_values())[0].item(), 10 + 4 * 0.5f);
}

TEST(RowStates, SecondDerivativesUseTheSameValues) {
  Network network = summing_network();
  network.make_row_states(2);
  network.forward({two_rows()});
  const Tensor x = two_rows();
  Tape outer;
  outer.watch(network.parameter_values());
  Tape inner;
  inner.watch(x);
  const Tensor y = network.forward({x}, {.training = true});
  const Tensor loss = ops::sum(y * y);
  // d loss / dx = 2 scale^2 (x + state); its sum's derivative by scale: 4 scale sum(x + state).
  const Tensor slope = inner.gradient(loss, {x}, {.create_graph = true})[0];
  EXPECT_EQ(outer.gradient(ops::sum(slope), network.parameter_values())[0].item(),
            4 * (2.5f + 4.5f + 6.5f + 8.5f));
}

// Its row depends on the number of observations.
struct OfTheBatch {
  static constexpr const char* kType = "of_the_batch";
  static constexpr const char* kHelp = "declares a row by the whole batch";
  void visit(FieldVisitor&) {}
  Value build(LayerBuilder& layer, Value x) const {
    const Value state = layer.row_state("state", x.shape());
    layer.carry(state, state * 0.5);
    return x;
  }
};

struct Wrong {
  static constexpr const char* kType = "wrong";
  static constexpr const char* kHelp = "uses a state by row wrongly";
  int64_t how = 0;
  void visit(FieldVisitor& v) { v.integer("how", how, "which mistake"); }
  Value build(LayerBuilder& layer, Value x) const {
    const Value state = layer.row_state("state", {3});
    if (how == 1) layer.row_state("state", {3});
    if (how == 2) layer.carry(x, state);
    if (how == 3) layer.carry(state, x);
    if (how >= 4) layer.carry(state, how == 6 ? ops::astype(state, DType::i32) : state + 1.0);
    if (how == 5) layer.carry(state, state);
    return x;
  }
};

TEST(RowStates, WrongUsesAreNamed) {
  const auto message = [](int64_t how) {
    return message_of<InvalidArgument>([&] {
      Network network{feature_input({.features = 2, .normalization = "none"}),
                      custom_layer(Wrong{how})};
      network.initialize(1);
    });
  };
  expect_says(message(0), "the state by row `state` is not carried; call carry(state, next) once");
  expect_says(message(1), "requests the state by row `state` twice");
  expect_says(message(2), "carry() needs a state by row, but received another value");
  expect_says(message(3), "a state of 1x3 cannot follow a value of 1x2");
  expect_says(message(6), "a state cannot follow a value of i32");
  expect_says(message(5), "the state by row `state` is carried twice");
  Network network{feature_input({.features = 2, .normalization = "none"}), custom_layer(Wrong{4})};
  network.initialize(1);
  EXPECT_THROW(network.make_row_states(-1), InvalidArgument);
  network.make_row_states(1);
  expect_says(message_of<InvalidArgument>([&] { network.forward({two_rows()}); }),
              "there are 2 observations, but the states by row are made for 1");
}

}  // namespace
}  // namespace lockstep
