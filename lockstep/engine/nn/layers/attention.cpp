// Embeddings, attention and what transformers are made of.
#include "lockstep/base/counted.h"
#include "lockstep/base/error.h"
#include "lockstep/base/numeric/random.h"
#include "lockstep/engine/nn/custom_layer.h"
#include "lockstep/engine/nn/inputs/sequences.h"
#include "lockstep/engine/nn/layers.h"
#include "lockstep/engine/nn/layers/initializer.h"
#include "lockstep/engine/nn/layers/registry.h"
#include "lockstep/engine/ops/views.h"

namespace lockstep {
namespace {

struct Embedding : EmbeddingOptions {
  Value build(LayerBuilder& layer, Value tokens) const {
    if (tokens.dtype() != DType::i32) {
      throw InvalidArgument(
          "[embedding] expected tokens (i32), received " + std::string(name_of(tokens.dtype())),
          "token_input makes tokens");
    }
    const Value weights =
        layer.parameter({"weights", Shape{vocabulary, units}, weights_initializer, vocabulary,
                         units, weights_l2_factor, weights_learning_rate_factor});
    return ops::embedding(weights, tokens);
  }
};

struct PositionEmbedding : PositionEmbeddingOptions {
  static constexpr bool kTakesSequences = true;
  Value build(LayerBuilder& layer, Value x) const {
    if (!layer.lengths(x).defined() || x.shape().rank() != 3) {
      throw InvalidArgument("[position_embedding] expected a sequence of channels, received " +
                            x.shape().without_batch().to_string());
    }
    const int64_t steps = x.shape()[1];
    const Value weights =
        layer.parameter({"weights", Shape{positions, x.shape()[2]}, "narrow-normal", positions,
                         x.shape()[2], weights_l2_factor, weights_learning_rate_factor});
    if (steps > steps_capacity(positions)) {
      throw InvalidArgument("[position_embedding] a sequence has more steps than the " +
                                counted(positions, "position"),
                            "raise `positions`, or cut the sequences");
    }
    Value at = ops::arange(x, 0, static_cast<double>(steps));
    if (layer.in_segments()) {
      layer.limit_steps(positions);
      at = ops::expand_dims(ops::astype(layer.earlier_steps(), DType::f32), 1) + at;
    }
    // Valid steps without a position become NaN, which a training reports.
    at = ops::astype(at, DType::i32);
    const Value valid = ops::expand_dims(ops::step_mask(layer.lengths(x), steps), 2);
    return ops::where(valid, x + ops::embedding(weights, at), x);
  }
};

struct RmsNormalization : RmsNormalizationOptions {
  Value build(LayerBuilder& layer, Value x) const {
    const int64_t channels = x.shape()[x.shape().rank() - 1];
    const Value scale =
        layer.parameter({"scale", Shape{channels}, "ones", 1, 1, l2_factor, learning_rate_factor});
    return ops::rms_norm(x, scale, epsilon);
  }
};

// n x steps x c as n * steps x c, and back.
Value rows_of(const Value& x) { return ops::reshaped(x, steps_together(x.shape())); }
Value steps_of_rows(const Value& rows, int64_t n) {
  return ops::reshaped(rows, steps_apart(rows.shape(), n));
}

// A dense layer on each step.
Value dense(LayerBuilder& layer, const std::string& name, const Value& x, int64_t units,
            bool bias) {
  const Shape& shape = x.shape();
  const int64_t channels = shape[shape.rank() - 1];
  const Value weights =
      layer.parameter({name + "_weights", Shape{units, channels}, "glorot", channels, units, 1, 1});
  const Value offset =
      bias ? layer.parameter({name + "_bias", Shape{units}, "zeros", channels, units, 0, 1})
           : Value();
  return steps_of_rows(ops::fully_connected(rows_of(x), weights, offset), shape[0]);
}

struct AttentionSettings {
  int64_t heads = 1;
  bool causal = false, bias = true;
  double dropout = 0;
};

// Queries, keys and values by one product, attention, and the projection of its result.
Value attended(LayerBuilder& layer, const std::string& type, const Value& x, const Value& lengths,
               const AttentionSettings& o, const std::string& prefix) {
  const int64_t channels = x.shape()[2];
  if (channels % o.heads != 0) {
    throw InvalidArgument("[" + type + "] " + std::to_string(o.heads) + " heads do not divide " +
                          counted(channels, "channel"));
  }
  const Value all = dense(layer, prefix + "in", x, 3 * channels, o.bias);
  std::vector<Value> parts = ops::split(all, 3, 2);
  Value key_lengths = lengths;
  if (layer.in_segments()) {
    if (!o.causal) {
      throw InvalidArgument("[" + type + "] needs later steps than those of a segment",
                            "causal = true has a result in each segment; predict() takes whole "
                            "sequences");
    }
    parts[1] = layer.with_earlier_steps(prefix + "keys", parts[1]);
    parts[2] = layer.with_earlier_steps(prefix + "values", parts[2]);
    const auto count = [](const Value& steps) { return ops::astype(steps, DType::f32); };
    key_lengths = ops::astype(count(layer.earlier_steps()) + count(lengths), DType::i32);
  }
  const Value y = ops::attention(parts[0], parts[1], parts[2], key_lengths, lengths,
                                 {.heads = o.heads,
                                  .causal = o.causal,
                                  .from_end = layer.in_segments(),
                                  .dropout = layer.training() ? o.dropout : 0,
                                  .layer = key_from_text(layer.name() + prefix)});
  return dense(layer, prefix + "out", y, channels, o.bias);
}

Value sequence_lengths(LayerBuilder& layer, const char* type, const Value& x) {
  const Value lengths = layer.lengths(x);
  if (lengths.defined() && x.shape().rank() == 3) return lengths;
  throw InvalidArgument("[" + std::string(type) + "] expected a sequence of channels, received " +
                            x.shape().without_batch().to_string(),
                        "sequence_input without a length, or token_input and embedding, make "
                        "sequences");
}

struct SelfAttention : SelfAttentionOptions {
  static constexpr bool kTakesSequences = true;
  Value build(LayerBuilder& layer, Value x) const {
    return attended(layer, kType, x, sequence_lengths(layer, kType, x),
                    {heads, causal, bias, dropout}, "");
  }
};

struct TransformerBlock : TransformerBlockOptions {
  static constexpr bool kTakesSequences = true;

  Value normalized(LayerBuilder& layer, const std::string& name, const Value& x) const {
    const Shape c{x.shape()[2]};
    const Value scale = layer.parameter({name + "_scale", c, "ones", 1, 1, 0, 1});
    const Value shift = layer.parameter({name + "_shift", c, "zeros", 1, 1, 0, 1});
    const Value rows = ops::group_normalization(rows_of(x), scale, shift, 1, epsilon);
    return steps_of_rows(rows, x.shape()[0]);
  }
  Value dropped(LayerBuilder& layer, const std::string& name, const Value& x) const {
    if (!layer.training() || dropout == 0) return x;
    return ops::dropout(x, dropout, key_from_text(layer.name() + name));
  }
  Value build(LayerBuilder& layer, Value x) const {
    const Value lengths = sequence_lengths(layer, kType, x);
    const int64_t channels = x.shape()[2];
    Value branch = attended(layer, kType, normalized(layer, "attention_norm", x), lengths,
                            {heads, causal, true, dropout}, "attention_");
    x = x + dropped(layer, "attention", branch);
    branch = dense(layer, "expand", normalized(layer, "feed_forward_norm", x),
                   feed_forward_factor * channels, true);
    branch = dense(layer, "contract", ops::gelu(branch), channels, true);
    return x + dropped(layer, "feed_forward", branch);
  }
};

void visit_heads(FieldVisitor& v, int64_t& heads, bool& causal, double& dropout) {
  v.integer("heads", heads, "number of heads, which divides the channels",
            {.min = 1, .max = 1 << 12, .required = true});
  v.flag("causal", causal, "a step sees itself and earlier steps only");
  v.number("dropout", dropout, "probability that a weight of attention is dropped",
           {.min = 0, .max = 1, .max_excluded = true});
}

}  // namespace

void EmbeddingOptions::visit(FieldVisitor& v) {
  v.integer("vocabulary", vocabulary, "number of different tokens",
            {.min = 1, .max = int64_t{1} << 31, .required = true});
  v.integer("units", units, "channels of a token's vector",
            {.min = 1, .max = 1 << 20, .required = true});
  v.text("weights_initializer", weights_initializer, "initializer of the vectors",
         initializer_names());
  v.number("weights_l2_factor", weights_l2_factor, "factor of the option l2", {.min = 0});
  v.number("weights_learning_rate_factor", weights_learning_rate_factor,
           "factor of the learning rate; 0: frozen", {.min = 0});
}

void PositionEmbeddingOptions::visit(FieldVisitor& v) {
  v.integer("positions", positions, "the most steps of a sequence",
            {.min = 1, .max = 1 << 24, .required = true});
  v.number("weights_l2_factor", weights_l2_factor, "factor of the option l2", {.min = 0});
  v.number("weights_learning_rate_factor", weights_learning_rate_factor,
           "factor of the learning rate; 0: frozen", {.min = 0});
}

void RmsNormalizationOptions::visit(FieldVisitor& v) {
  v.number("epsilon", epsilon, "added to the mean square", {.min = 0, .min_excluded = true});
  v.number("l2_factor", l2_factor, "factor of the option l2 for the scale", {.min = 0});
  v.number("learning_rate_factor", learning_rate_factor,
           "factor of the learning rate for the scale; 0: frozen", {.min = 0});
}

void SelfAttentionOptions::visit(FieldVisitor& v) {
  visit_heads(v, heads, causal, dropout);
  v.flag("bias", bias, "biases of the four projections");
}

void TransformerBlockOptions::visit(FieldVisitor& v) {
  visit_heads(v, heads, causal, dropout);
  v.integer("feed_forward_factor", feed_forward_factor,
            "hidden channels of the feed-forward part for each channel", {.min = 1, .max = 1 << 8});
  v.number("epsilon", epsilon, "added to the variances", {.min = 0, .min_excluded = true});
}

LayerPtr embedding(EmbeddingOptions options) { return custom_layer(Embedding{std::move(options)}); }
LayerPtr position_embedding(PositionEmbeddingOptions options) {
  return custom_layer(PositionEmbedding{options});
}
LayerPtr rms_normalization(RmsNormalizationOptions options) {
  return custom_layer(RmsNormalization{options});
}
LayerPtr self_attention(SelfAttentionOptions options) {
  return custom_layer(SelfAttention{options});
}
LayerPtr transformer_block(TransformerBlockOptions options) {
  return custom_layer(TransformerBlock{options});
}

LayerInfo layers::embedding_info() { return layer_info<Embedding>(); }
LayerInfo layers::position_embedding_info() { return layer_info<PositionEmbedding>(); }
LayerInfo layers::rms_normalization_info() { return layer_info<RmsNormalization>(); }
LayerInfo layers::self_attention_info() { return layer_info<SelfAttention>(); }
LayerInfo layers::transformer_block_info() { return layer_info<TransformerBlock>(); }

}  // namespace lockstep
