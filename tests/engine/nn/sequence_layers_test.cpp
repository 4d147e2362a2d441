// Layers that take whole sequences: recurrent ones, attention, embeddings, convolutions of steps.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "lockstep/base/error.h"
#include "lockstep/engine/nn/layers.h"
#include "lockstep/engine/nn/network.h"
#include "lockstep/engine/ops/ops.h"
#include "tests/data/support.h"
#include "tests/engine/ops/harness.h"

namespace lockstep {
namespace {

using testing::expect_says;
using testing::message_of;

Tensor some(const Shape& shape, int seed = 0) {
  std::vector<float> values;
  for (int64_t i = 0; i < shape.elements(); ++i) {
    values.push_back(0.1f * static_cast<float>((i * 13 + seed * 5) % 37) - 1.8f);
  }
  return Tensor::from(std::span<const float>(values), shape);
}

Tensor integers(const std::vector<int32_t>& values, const Shape& shape) {
  return Tensor::from(std::span(values), shape);
}

Network of(const std::vector<LayerPtr>& layers, uint64_t seed = 1) {
  Network network;
  for (const LayerPtr& layer : layers) network.add(layer);
  network.initialize(seed);
  return network;
}

LayerPtr three_channels() { return sequence_input({.channels = 3, .normalization = "none"}); }

TEST(SequenceLayers, LstmIsTheOp) {
  Network network = of({three_channels(), lstm({.units = 4})});
  EXPECT_EQ(network.parameter("lstm_1.weights").shape(), (Shape{16, 3}));
  EXPECT_EQ(network.parameter("lstm_1.recurrent_weights").shape(), (Shape{16, 4}));
  const std::vector<float> bias = network.parameter("lstm_1.bias").to_vector();
  for (size_t i = 0; i < 16; ++i) EXPECT_EQ(bias[i], i / 4 == 1 ? 1.0f : 0.0f) << "forget gate";
  const Tensor x = some({2, 5, 3}), lengths = integers({5, 2}, {2});
  const Tensor y = network.forward({x}, {.lengths = {lengths}});
  const Tensor zeros = Tensor::zeros({2, 4});
  const auto wanted = ops::lstm(x, lengths, network.parameter("lstm_1.weights"),
                                network.parameter("lstm_1.recurrent_weights"),
                                network.parameter("lstm_1.bias"), zeros, zeros);
  EXPECT_EQ(y.to_vector(), wanted.y.to_vector());
  Network last = of({three_channels(), lstm({.units = 4, .output = "last"})});
  EXPECT_FALSE(last.outputs().at(0).sequence);
  EXPECT_EQ(last.forward({x}, {.lengths = {lengths}}).to_vector(), wanted.h.to_vector());
}

TEST(SequenceLayers, BothDirectionsAreConcatenated) {
  const Tensor x = some({2, 5, 3}), lengths = integers({5, 2}, {2});
  for (const bool uses_gru : {false, true}) {
    const auto layer = [&](const char* output) {
      return uses_gru ? gru({.units = 4, .output = output, .bidirectional = true})
                      : rnn({.units = 4, .output = output, .bidirectional = true});
    };
    Network all = of({three_channels(), layer("sequence")});
    Network last = of({three_channels(), layer("last")});
    const Tensor y = all.forward({x}, {.lengths = {lengths}});
    const Tensor h = last.forward({x}, {.lengths = {lengths}});
    ASSERT_EQ(y.shape(), (Shape{2, 5, 8}));
    ASSERT_EQ(h.shape(), (Shape{2, 8}));
    for (int64_t n = 0; n < 2; ++n) {
      const int64_t end = n == 0 ? 4 : 1;
      for (int64_t k = 0; k < 4; ++k) {
        EXPECT_EQ(h.data<float>()[n * 8 + k], y.data<float>()[(n * 5 + end) * 8 + k]);
        EXPECT_EQ(h.data<float>()[n * 8 + 4 + k], y.data<float>()[n * 40 + 4 + k]) << "first step";
      }
    }
  }
}

// Data of one length is channels x steps, as convolution1d() has it.
TEST(SequenceLayers, TakeSequencesOfOneLength) {
  Network any = of({three_channels(), gru({.units = 4})});
  Network fixed = of(
      {sequence_input({.channels = 3, .length = 5, .normalization = "none"}), gru({.units = 4})});
  EXPECT_EQ(fixed.output_shapes(), std::vector<Shape>{(Shape{4, 5})});
  const Tensor x = some({2, 5, 3});
  const Tensor y = any.forward({x}), z = fixed.forward({ops::permute_dims(x, {0, 2, 1})});
  EXPECT_EQ(ops::permute_dims(z, {0, 2, 1}).to_vector(), y.to_vector());
}

// A sequence in two segments is the sequence in one.
TEST(SequenceLayers, CarryTheirStatesFromSegmentToSegment) {
  const Tensor x = some({2, 6, 3});
  for (int kind = 0; kind < 3; ++kind) {
    const auto layer = [&](bool carry) {
      return kind == 0   ? lstm({.units = 4, .carry_state = carry})
             : kind == 1 ? gru({.units = 4, .carry_state = carry, .reset_after = false})
                         : rnn({.units = 4, .carry_state = carry, .activation = "relu"});
    };
    Network whole = of({three_channels(), layer(false)});
    Network segments = of({three_channels(), layer(true)});
    segments.make_row_states(2);
    const Tensor y = whole.forward({x});
    const auto part = [&](int64_t first) {
      return ops::slice(x, {{}, {first, first + 3}}).to_row_major();
    };
    const Tensor first = segments.forward({part(0)}), second = segments.forward({part(3)});
    EXPECT_EQ(ops::concat({first, second}, 1).to_vector(), y.to_vector()) << kind;
  }
  Network both = of({three_channels(), relu()});
  both.add(lstm({.units = 2, .bidirectional = true, .carry_state = true}));
  expect_says(message_of<InvalidArgument>([&] { both.check(); }), "carry_state is not possible");
}

TEST(SequenceLayers, TransformersSeeOnlyEarlierStepsIfTheyAreCausal) {
  for (const bool causal : {true, false}) {
    Network network =
        of({token_input({.vocabulary = 11}), embedding({.vocabulary = 11, .units = 8}),
            position_embedding({.positions = 6}), transformer_block({.heads = 2, .causal = causal}),
            rms_normalization(), fully_connected({.units = 11})});
    const Tensor a = integers({1, 2, 3, 4, 5, 6}, {1, 6}), b = integers({1, 2, 3, 4, 5, 7}, {1, 6});
    const Tensor x = network.forward({a}), y = network.forward({b});
    ASSERT_EQ(x.shape(), (Shape{1, 6, 11}));
    bool same = true;
    for (int64_t i = 0; i < 55; ++i) same &= x.data<float>()[i] == y.data<float>()[i];
    EXPECT_EQ(same, causal);
    EXPECT_NE(x.data<float>()[55], y.data<float>()[55]);
    // Padding changes nothing.
    const Tensor padded = integers({1, 2, 3, 4, 5, 6, 9, 9}, {1, 8});
    Network wide =
        of({token_input({.vocabulary = 11}), embedding({.vocabulary = 11, .units = 8}),
            position_embedding({.positions = 8}), transformer_block({.heads = 2, .causal = causal}),
            rms_normalization(), fully_connected({.units = 11})});
    for (size_t p = 0; p < wide.parameters().size(); ++p) {
      const Tensor from = network.parameters()[p].value, to = wide.parameters()[p].value;
      std::copy_n(from.data<float>(), from.shape().elements(), to.data<float>());
    }
    const Tensor z = wide.forward({padded}, {.lengths = {integers({6}, {1})}});
    for (int64_t i = 0; i < 66; ++i) EXPECT_EQ(z.data<float>()[i], x.data<float>()[i]) << i;
  }
}

TEST(SequenceLayers, PositionsHaveAnEnd) {
  Network network = of({token_input({.vocabulary = 3}), embedding({.vocabulary = 3, .units = 2}),
                        position_embedding({.positions = 9})});
  const Tensor x = Tensor::zeros({1, 10}, DType::i32);
  const Tensor short_enough = network.forward({x}, {.lengths = {integers({9}, {1})}});
  for (int64_t i = 0; i < 20; ++i) EXPECT_TRUE(std::isfinite(short_enough.data<float>()[i]));
  const Tensor y = network.forward({x});
  EXPECT_TRUE(std::isnan(y.data<float>()[18])) << "step 10 has no position";
  expect_says(message_of<InvalidArgument>([&] {
                network.forward({Tensor::zeros({1, 40}, DType::i32)});
              }),
              "more steps than the 9 positions");
}

TEST(SequenceLayers, ConvolutionsOfStepsKeepTheirNumber) {
  const Tensor x = some({2, 7, 3}), lengths = integers({7, 4}, {2});
  for (const bool causal : {true, false}) {
    Convolution1dOptions options{.filters = 2, .kernel = 3, .dilation = 2, .causal = causal};
    options.padding.same = !causal;
    Network network = of({three_channels(), convolution1d(options)});
    const Tensor y = network.forward({x}, {.lengths = {lengths}});
    ASSERT_EQ(y.shape(), (Shape{2, 7, 2}));
    const Tensor w = network.parameter("convolution1d_1.weights");
    // Step by step, with zeros outside of the valid steps.
    for (int64_t n = 0; n < 2; ++n) {
      const int64_t end = n == 0 ? 7 : 4;
      for (int64_t t = 0; t < end; ++t) {
        for (int64_t f = 0; f < 2; ++f) {
          double sum = 0;
          for (int64_t k = 0; k < 3; ++k) {
            const int64_t at = t + (k - (causal ? 2 : 1)) * 2;
            for (int64_t c = 0; c < 3 && at >= 0 && at < end; ++c) {
              sum += static_cast<double>(w.data<float>()[(f * 3 + c) * 3 + k]) *
                     static_cast<double>(x.data<float>()[(n * 7 + at) * 3 + c]);
            }
          }
          EXPECT_NEAR(y.data<float>()[(n * 7 + t) * 2 + f], sum, 1e-5) << n << " " << t;
        }
      }
    }
  }
  Network strided{three_channels(), convolution1d({.filters = 2, .kernel = 3})};
  expect_says(message_of<InvalidArgument>([&] { strided.check(); }), "causal = true");
}

TEST(SequenceLayers, OneResultForASequence) {
  const Tensor x = some({3, 4, 3}), lengths = integers({4, 1, 0}, {3});
  Network last = of({three_channels(), last_step()});
  Network mean = of({three_channels(), global_average_pooling1d()});
  const Tensor a = last.forward({x}, {.lengths = {lengths}});
  const Tensor b = mean.forward({x}, {.lengths = {lengths}});
  for (int64_t c = 0; c < 3; ++c) {
    const float* const v = x.data<float>();
    EXPECT_EQ(a.data<float>()[c], v[9 + c]);
    EXPECT_EQ(a.data<float>()[3 + c], v[12 + c]);
    EXPECT_EQ(a.data<float>()[6 + c], 0);
    EXPECT_NEAR(b.data<float>()[c], (v[c] + v[3 + c] + v[6 + c] + v[9 + c]) / 4, 1e-6);
    EXPECT_EQ(b.data<float>()[3 + c], v[12 + c]);
    EXPECT_EQ(b.data<float>()[6 + c], 0);
  }
  Network images{image_input({.height = 2, .width = 2, .channels = 3}), last_step()};
  expect_says(message_of<InvalidArgument>([&] { images.check(); }), "expected a sequence");
}

TEST(SequenceLayers, RefuseWhatDoesNotFit) {
  const auto problem = [](const std::vector<LayerPtr>& layers) {
    Network network;
    for (const LayerPtr& layer : layers) network.add(layer);
    return message_of<InvalidArgument>([&] { network.check(); });
  };
  expect_says(problem({three_channels(), self_attention({.heads = 2})}), "2 heads do not divide 3");
  expect_says(problem({three_channels(), embedding({.vocabulary = 3, .units = 2})}),
              "expected tokens");
  expect_says(problem({feature_input({.features = 3}), lstm({.units = 2})}), "expected a sequence");
  expect_says(problem({token_input({.vocabulary = 5}), gru({.units = 2})}), "expected a sequence");
  expect_says(problem({token_input({.vocabulary = 26}), embedding({.vocabulary = 20, .units = 2})}),
              "[embedding] has 20 tokens, but its input gives 26");
  Network room{token_input({.vocabulary = 20}), embedding({.vocabulary = 26, .units = 2})};
  room.check();
}

TEST(SequenceLayers, PoolingNeedsAFixedLength) {
  const auto expect_refused = [](const LayerPtr& input, const LayerPtr& layer,
                                 const std::string& type) {
    Network network;
    network.add(input);
    network.add(layer, "pool");
    const std::string message = message_of<InvalidArgument>([&] { network.check(); });
    expect_says(message, "pool: [" + type + "] takes sequences of one fixed length only");
    expect_says(message, "give sequence_input its `length`");
    expect_says(message, "global_average_pooling1d");
  };
  expect_refused(three_channels(), max_pooling1d({}), "max_pooling1d");
  expect_refused(three_channels(), average_pooling1d({}), "average_pooling1d");
  expect_refused(feature_input({.features = 3}), max_pooling1d({}), "max_pooling1d");
  Network fixed{sequence_input({.channels = 3, .length = 8}), max_pooling1d({.stride = 2})};
  EXPECT_EQ(fixed.output_shapes().at(0), (Shape{3, 4}));
}

}  // namespace
}  // namespace lockstep
