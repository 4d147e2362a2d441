// Sequences that a network predicts segment by segment (Network::predict_and_update()).
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

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

Tensor of_ints(const std::vector<int32_t>& values, const Shape& shape) {
  return Tensor::from(std::span(values), shape);
}

// n x steps x channels, or n x steps tokens below 11.
Tensor observations(int64_t n, int64_t steps, int64_t channels, uint32_t seed) {
  std::mt19937 random(seed);
  if (channels == 0) {
    std::vector<int32_t> tokens;
    for (int64_t i = 0; i < n * steps; ++i) tokens.push_back(static_cast<int32_t>(random() % 11));
    return of_ints(tokens, {n, steps});
  }
  std::vector<float> values;
  for (int64_t i = 0; i < n * steps * channels; ++i) {
    values.push_back(static_cast<float>(random() % 4001) / 1000 - 2);
  }
  return Tensor::from(std::span<const float>(values), {n, steps, channels});
}

// The elements of a row's steps, of n x steps x ....
std::vector<float> steps_of(const Tensor& y, int64_t row, int64_t first, int64_t count) {
  const int64_t each = y.shape().elements() / (y.shape()[0] * y.shape()[1]);
  const float* const from = y.data<float>() + (row * y.shape()[1] + first) * each;
  return {from, from + count * each};
}

// Whether elements differ by at most `tolerance`; without one they are equal. NaN is not equal to
// anything.
bool agree(const std::vector<float>& a, const std::vector<float>& b, float tolerance) {
  return std::ranges::equal(a, b, [&](float x, float y) {
    return tolerance == 0 ? x == y : std::abs(x - y) <= tolerance;
  });
}

// Cuts sequences into segments of random sizes, also of none, on which rows do not agree, and
// compares with predict().
void expect_segments_to_be_the_whole(Network& network, int64_t n, int64_t most, uint32_t seed,
                                     float tolerance = 0) {
  SCOPED_TRACE(n);
  const NetworkValue input = network.inputs().at(0);
  const bool tokens = input.type == DType::i32, sequence = network.outputs().at(0).sequence;
  const Tensor x = observations(n, most, tokens ? 0 : input.shape[0], seed);
  std::mt19937 random(seed + 1);
  std::vector<int32_t> lengths;
  for (int64_t i = 0; i < n; ++i) {
    lengths.push_back(static_cast<int32_t>(1 + random() % static_cast<uint32_t>(most)));
  }
  lengths[0] = static_cast<int32_t>(most);
  const Tensor whole = network.predict(x, of_ints(lengths, {n}));
  network.reset_state();
  std::vector<int32_t> done(static_cast<size_t>(n), 0);
  Tensor last;
  while (done != lengths) {
    const int32_t room = 1 + static_cast<int32_t>(random() % 9);
    std::vector<int32_t> counts;
    for (size_t i = 0; i < done.size(); ++i) {
      const auto some = static_cast<int32_t>(random() % static_cast<uint32_t>(room + 1));
      counts.push_back(std::min(some, lengths[i] - done[i]));
    }
    Tensor segment(tokens ? Shape{n, room} : Shape{n, room, input.shape[0]}, x.dtype());
    std::fill_n(static_cast<std::byte*>(segment.raw()), segment.bytes(),
                tokens ? std::byte{0} : std::byte{0x7f});
    const size_t step = x.bytes() / static_cast<size_t>(n * most);
    for (int64_t i = 0; i < n; ++i) {
      std::copy_n(static_cast<const std::byte*>(x.raw()) +
                      static_cast<size_t>(i * most + done[static_cast<size_t>(i)]) * step,
                  static_cast<size_t>(counts[static_cast<size_t>(i)]) * step,
                  static_cast<std::byte*>(segment.raw()) + static_cast<size_t>(i * room) * step);
    }
    last = network.predict_and_update(segment, of_ints(counts, {n}));
    for (int64_t i = 0; i < n && sequence; ++i) {
      const auto k = static_cast<size_t>(i);
      const auto own = steps_of(last, i, 0, counts[k]),
                 all = steps_of(whole, i, done[k], counts[k]);
      ASSERT_TRUE(agree(own, all, tolerance)) << i;
    }
    for (size_t i = 0; i < done.size(); ++i) done[i] += counts[i];
  }
  if (!sequence) {
    ASSERT_TRUE(agree(last.to_vector(), whole.to_vector(), tolerance));
  }
}

Network of_layers(const std::vector<LayerPtr>& layers, uint64_t seed = 1) {
  Network network;
  for (const LayerPtr& layer : layers) network.add(layer);
  network.initialize(seed);
  return network;
}

LayerPtr channels(int64_t count) {
  return sequence_input({.channels = count, .normalization = "none"});
}

TEST(Segments, HaveTheBitsOfWholeSequences) {
  const std::vector<std::vector<LayerPtr>> networks{
      {channels(3), lstm({.units = 17}), dropout(), fully_connected({.units = 5}), softmax()},
      {channels(1), lstm({.units = 1})},
      {channels(12), lstm({.units = 100}), gru({.units = 33}), fully_connected({.units = 2})},
      {channels(2), gru({.units = 7, .reset_after = false}), layer_normalization(),
       rnn({.units = 5, .activation = "relu"}), tanh()},
      {channels(4), fully_connected({.units = 6}), gelu(), rnn({.units = 16, .carry_state = true}),
       rms_normalization()},
      {token_input({.vocabulary = 11}), embedding({.vocabulary = 11, .units = 8}),
       lstm({.units = 9}), fully_connected({.units = 11})},
      {channels(3), gru({.units = 6, .output = "last"}), fully_connected({.units = 2})},
      {channels(3), lstm({.units = 6}), last_step(), fully_connected({.units = 2}), softmax()},
      {channels(3), fully_connected({.units = 4}), last_step()},
      {channels(6), self_attention({.heads = 2, .causal = true}), fully_connected({.units = 2})},
      {token_input({.vocabulary = 11}), embedding({.vocabulary = 11, .units = 12}),
       position_embedding({.positions = 150}), transformer_block({.heads = 3, .causal = true}),
       transformer_block({.heads = 1, .causal = true, .dropout = 0.5}), lstm({.units = 4}),
       fully_connected({.units = 11}), softmax()},
      {channels(4), transformer_block({.heads = 2, .causal = true}), last_step()},
  };
  for (size_t k = 0; k < networks.size(); ++k) {
    SCOPED_TRACE("network " + std::to_string(k));
    Network network = of_layers(networks[k], k);
    for (const int64_t n : {1, 3, 16, 18}) {
      expect_segments_to_be_the_whole(network, n, 23, static_cast<uint32_t>(k));
    }
    expect_segments_to_be_the_whole(network, 2, 150, 5);
  }
}

// The order of a convolution's additions may depend on the number of steps.
TEST(Segments, OfConvolutionsAreTheWholeUpToRounding) {
  const std::vector<std::vector<LayerPtr>> networks{
      {channels(3), convolution1d({.filters = 5, .kernel = 3, .causal = true}), relu(),
       convolution1d({.filters = 4, .kernel = 4, .dilation = 5, .causal = true})},
      {channels(16), convolution1d({.filters = 32, .kernel = 2, .dilation = 30, .causal = true}),
       convolution1d({.filters = 3, .kernel = 1, .padding = {.same = true}}), last_step()},
  };
  for (const auto& layers : networks) {
    Network network = of_layers(layers, 4);
    for (const int64_t n : {1, 3, 18}) expect_segments_to_be_the_whole(network, n, 73, 6, 1e-5f);
  }
}

// Branches that join, and a layer that is used twice.
TEST(Segments, RunInGraphs) {
  Network network;
  network.add(channels(3), "in");
  network.add(lstm({.units = 3}), "first", {"in"});
  network.add_shared("first", "second", {"first"});
  network.add(concatenation(), "both", {"first", "second"});
  network.add(gru({.units = 4}), "third", {"both"});
  network.initialize(1);
  expect_segments_to_be_the_whole(network, 3, 20, 1);
}

TEST(Segments, OfOneStepAreForecastsThatReadThemselves) {
  Network network = of_layers({channels(2), lstm({.units = 8}), fully_connected({.units = 2})});
  Tensor all = observations(2, 6, 2, 3);
  Tensor next = network.predict_and_update(all);
  next = ops::slice(next, {{}, {5, 6}}).to_row_major();
  for (int step = 0; step < 5; ++step) {
    all = ops::concat({all, next}, 1);
    next = network.predict_and_update(next);
    const int64_t steps = all.shape()[1];
    const Tensor wanted = ops::slice(network.predict(all), {{}, {steps - 1, steps}});
    EXPECT_EQ(next.to_vector(), wanted.to_row_major().to_vector());
  }
}

TEST(Segments, BeginAnewAfterAReset) {
  Network network = of_layers({channels(2), lstm({.units = 3})});
  const Tensor x = observations(2, 4, 2, 1), three = observations(3, 4, 2, 1);
  const std::vector<float> first = network.predict_and_update(x).to_vector();
  EXPECT_EQ(first, network.predict(x).to_vector());
  Network copy = network.clone();
  EXPECT_NE(network.predict_and_update(x).to_vector(), first);
  EXPECT_NE(copy.predict_and_update(x).to_vector(), first) << "clone() copies what is kept";
  EXPECT_EQ(copy.predict_and_update(x).to_vector(), network.predict_and_update(x).to_vector());
  EXPECT_EQ(network.predict(x).to_vector(), first) << "predict() reads no states";
  network.reset_state();
  EXPECT_EQ(network.predict_and_update(x).to_vector(), first);
  expect_says(message_of<InvalidArgument>([&] { network.predict_and_update(three); }),
              "continues 2 sequences, received segments of 3");
  network.reset_state();
  network.predict_and_update(three);
  network.initialize(1);
  EXPECT_EQ(network.predict_and_update(x).to_vector(), first);
  // States by row of mini-batches are others.
  Network carries = of_layers({channels(2), lstm({.units = 3, .carry_state = true})});
  carries.make_row_states(2);
  carries.predict_and_update(x);
  EXPECT_EQ(carries.row_states()[0].value.to_vector(), std::vector<float>(6, 0));
  EXPECT_EQ(carries.forward({x}).to_vector(), first);
}

TEST(Segments, KeepNothingAfterAnError) {
  Network network = of_layers({channels(2), gru({.units = 3})});
  const Tensor x = observations(2, 4, 2, 1);
  const std::vector<float> first = network.predict_and_update(x).to_vector();
  Network copy = network.clone();
  EXPECT_THROW(network.predict_and_update(x, of_ints({5, 1}, {2})), InvalidArgument);
  EXPECT_THROW(network.predict_and_update(x, of_ints({-1, 1}, {2})), InvalidArgument);
  EXPECT_THROW(network.predict_and_update(x, of_ints({1}, {1})), InvalidArgument);
  EXPECT_THROW(network.predict_and_update(observations(2, 4, 3, 1)), InvalidArgument);
  {
    const LimitedForward refused(ForwardLimit::carry_refused);
    expect_says(message_of<InvalidArgument>([&] { network.predict_and_update(x); }),
                "in a loss of shards");
  }
  {
    const LimitedForward leaves_no_trace(ForwardLimit::predictions);
    network.predict_and_update(x);
  }
  const std::vector<float> after = network.predict_and_update(x).to_vector();
  EXPECT_EQ(after, copy.predict_and_update(x).to_vector());
  // No sequence has a step.
  copy.predict_and_update(x, of_ints({0, 0}, {2}));
  EXPECT_EQ(copy.predict_and_update(x).to_vector(), network.predict_and_update(x).to_vector());
}

TEST(Segments, HaveNoMoreStepsThanPositions) {
  Network network =
      of_layers({channels(2), position_embedding({.positions = 9}), lstm({.units = 3})});
  EXPECT_EQ(network.most_steps_in_segments(), 9);
  EXPECT_EQ(of_layers({channels(2), gru({.units = 3})}).most_steps_in_segments(),
            std::numeric_limits<int64_t>::max());
  EXPECT_EQ(of_layers({channels(2), self_attention({.heads = 1})}).most_steps_in_segments(), 0);
  const Tensor x = observations(2, 9, 2, 1), five = ops::slice(x, {{}, {0, 5}});
  const std::vector<float> whole = network.predict(x).to_vector();
  network.predict_and_update(five);
  expect_says(message_of<InvalidArgument>([&] { network.predict_and_update(five); }),
              "sequence 1 has 10 steps, but the layer `position_embedding_1` has room for 9");
  const Tensor rest = network.predict_and_update(ops::slice(x, {{}, {5, 9}}));
  for (int64_t row = 0; row < 2; ++row) {
    EXPECT_EQ(steps_of(rest, row, 0, 4), std::vector<float>(whole.begin() + (row * 9 + 5) * 3,
                                                            whole.begin() + (row * 9 + 9) * 3));
  }
}

// Attention keeps steps beyond each room that it has had, also in copies and after errors.
TEST(Segments, OfAttentionAreKept) {
  Network network = of_layers({channels(4), transformer_block({.heads = 2, .causal = true}),
                               self_attention({.heads = 1, .causal = true})});
  const Tensor x = observations(3, 300, 4, 1);
  const Tensor whole = network.predict(x);
  const auto segment = [&](int64_t first, int64_t end) {
    return ops::slice(x, {{}, {first, end}});
  };
  const auto expect_steps = [&](Network& of, int64_t first, int64_t end) {
    const Tensor y = of.predict_and_update(segment(first, end));
    for (int64_t row = 0; row < 3; ++row) {
      ASSERT_EQ(steps_of(y, row, 0, end - first), steps_of(whole, row, first, end - first));
    }
  };
  expect_steps(network, 0, 1);
  expect_steps(network, 1, 63);
  Network copy = network.clone();
  expect_steps(network, 63, 65);
  copy.predict_and_update(segment(200, 290));
  expect_steps(network, 65, 131);
  EXPECT_THROW(network.predict_and_update(observations(3, 2, 3, 1)), InvalidArgument);
  {
    const LimitedForward leaves_no_trace(ForwardLimit::predictions);
    network.predict_and_update(segment(200, 290));
  }
  expect_steps(network, 131, 132);
  expect_steps(network, 132, 300);
}

struct ReversedSteps {
  static constexpr const char* kType = "reversed_steps";
  static constexpr const char* kHelp = "does not know of segments";
  static constexpr bool kTakesSequences = true;
  void visit(FieldVisitor&) {}
  Value build(LayerBuilder&, Value x) const { return ops::flip(x, {1}); }
};

TEST(Segments, AreRefusedByLayersThatNeedOtherSteps) {
  const std::vector<std::pair<LayerPtr, std::string>> layers{
      {lstm({.units = 2, .bidirectional = true}), "lstm_1: [lstm] bidirectional needs later steps"},
      {gru({.units = 2, .bidirectional = true}), "gru_1: [gru] bidirectional needs later steps"},
      {rnn({.units = 2, .bidirectional = true}), "rnn_1: [rnn] bidirectional needs later steps"},
      {convolution1d({.filters = 2, .kernel = 3, .padding = {.same = true}}),
       "convolution1d_1: [convolution1d] padding \"same\" needs later steps"},
      {global_average_pooling1d(),
       "global_average_pooling1d_1: [global_average_pooling1d] needs later steps"},
      {self_attention({.heads = 1}), "self_attention_1: [self_attention] needs later steps"},
      {transformer_block({.heads = 1}), "transformer_block_1: [transformer_block] needs later"},
      {custom_layer(ReversedSteps{}), "reversed_steps_1: [reversed_steps] needs other steps"},
  };
  for (const auto& [layer, says] : layers) {
    Network network = of_layers({channels(2), layer});
    network.predict(observations(2, 4, 2, 1));
    const std::string message =
        message_of<InvalidArgument>([&] { network.predict_and_update(observations(2, 4, 2, 1)); });
    expect_says(message, "cannot run segment by segment; 1 problem");
    expect_says(message, says);
  }
  Network fixed = of_layers(
      {sequence_input({.channels = 2, .length = 4, .normalization = "none"}), lstm({.units = 3})});
  expect_says(
      message_of<InvalidArgument>([&] { fixed.predict_and_update(observations(2, 2, 4, 1)); }),
      "takes sequences, but `sequence_input_1` has observations of one size");
}

}  // namespace
}  // namespace lockstep
