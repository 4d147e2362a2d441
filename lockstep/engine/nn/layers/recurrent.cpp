// Recurrent layers: LSTM, GRU and Elman's network.
#include "lockstep/base/error.h"
#include "lockstep/engine/nn/custom_layer.h"
#include "lockstep/engine/nn/layers.h"
#include "lockstep/engine/nn/layers/initializer.h"
#include "lockstep/engine/nn/layers/registry.h"

namespace lockstep {
namespace {

template <class Options>
void visit_recurrent(FieldVisitor& v, Options& o) {
  v.integer("units", o.units, "size of the hidden state",
            {.min = 1, .max = 1 << 16, .required = true});
  v.text("output", o.output, "the hidden states of all steps, or that of the last step",
         {"sequence", "last"});
  v.flag("bidirectional", o.bidirectional,
         "a second network from the last step to the first, whose outputs are added as channels");
  v.flag("carry_state", o.carry_state,
         "a mini-batch begins with the states that the one before has left, row by row; the first "
         "of an epoch with zeros");
  v.text("weights_initializer", o.weights_initializer, "initializer of the weights",
         initializer_names());
  v.text("recurrent_initializer", o.recurrent_initializer, "initializer of the recurrent weights",
         initializer_names());
  v.number("weights_l2_factor", o.weights_l2_factor, "factor of the option l2 for all weights",
           {.min = 0});
  v.number("learning_rate_factor", o.learning_rate_factor,
           "factor of the learning rate for weights and biases; 0: frozen", {.min = 0});
}

// The data as n x steps x channels with lengths. Sequences of one length are channels x steps.
struct Steps {
  Value x, lengths;
  bool fixed = false;
};

Steps steps_of(LayerBuilder& layer, const char* type, const Value& x) {
  const Value lengths = layer.lengths(x);
  if (x.shape().rank() != 3) {
    throw InvalidArgument("[" + std::string(type) + "] expected a sequence of channels, received " +
                              x.shape().without_batch().to_string(),
                          "sequence_input makes sequences");
  }
  if (lengths.defined()) return {x, lengths};
  const Value by_step = ops::permute_dims(x, {0, 2, 1});
  const auto steps = static_cast<double>(x.shape()[2]);
  return {by_step, ops::astype(ops::full_like(x, Shape{x.shape()[0]}, steps), DType::i32), true};
}

struct Recurrence {
  Value y, last;
};

// What the recurrent layers have in common; `gates`: rows of the weights for each unit.
template <class Options>
struct RecurrentBuild {
  LayerBuilder& layer;
  const Options& o;
  int64_t gates;

  Value parameter(const std::string& name, const Shape& shape, const std::string& initializer,
                  int64_t fan_in, double l2_factor) const {
    return layer.parameter(
        {name, shape, initializer, fan_in, gates * o.units, l2_factor, o.learning_rate_factor});
  }
  Value weights(const std::string& prefix, int64_t channels) const {
    return parameter(prefix + "weights", {gates * o.units, channels}, o.weights_initializer,
                     channels, o.weights_l2_factor);
  }
  Value recurrent(const std::string& prefix) const {
    return parameter(prefix + "recurrent_weights", {gates * o.units, o.units},
                     o.recurrent_initializer, o.units, o.weights_l2_factor);
  }
  Value bias(const std::string& name, const std::string& initializer = "zeros") const {
    return parameter(name, {gates * o.units}, initializer, o.units, 0);
  }
  // Whether the states after the last step are those before the first one of the next run. An
  // observation of one length is a whole sequence.
  bool carries(const Steps& steps) const {
    return o.carry_state || (layer.in_segments() && !steps.fixed);
  }
  // The state before the first step.
  Value initial(const std::string& name, const Steps& steps) const {
    if (carries(steps)) return layer.row_state(name, {o.units});
    return ops::full_like(steps.x, {steps.x.shape()[0], o.units}, 0);
  }
  void keep(const Steps& steps, const Value& state, const Value& next) const {
    if (carries(steps)) layer.carry(state, next);
  }

  // `run(steps, prefix, reverse)` computes one direction.
  template <class Run>
  Value build(const Value& given, const Run& run) const {
    if (o.carry_state && o.bidirectional) {
      throw InvalidArgument(
          "[" + std::string(Options::kType) + "] carry_state is not possible with bidirectional",
          "the backward network begins at the end of a sequence");
    }
    const Steps steps = steps_of(layer, Options::kType, given);
    if (o.bidirectional && carries(steps)) {
      throw InvalidArgument("[" + std::string(Options::kType) +
                                "] bidirectional needs later steps than those of a segment",
                            "predict() takes whole sequences");
    }
    Recurrence made = run(steps, std::string(), false);
    if (o.bidirectional) {
      const Recurrence back = run(steps, std::string("reverse_"), true);
      made = {ops::concat({made.y, back.y}, 2), ops::concat({made.last, back.last}, 1)};
    }
    if (o.output == "last") {
      layer.set_lengths({});
      return made.last;
    }
    return steps.fixed ? ops::permute_dims(made.y, {0, 2, 1}) : made.y;
  }
};

struct Lstm : LstmOptions {
  static constexpr bool kTakesSequences = true;
  Value build(LayerBuilder& layer, Value given) const {
    const RecurrentBuild<LstmOptions> common{layer, *this, 4};
    return common.build(given, [&](const Steps& steps, const std::string& prefix, bool reverse) {
      const Value w = common.weights(prefix, steps.x.shape()[2]);
      const Value u = common.recurrent(prefix);
      const Value b = common.bias(prefix + "bias", "unit-forget-gate");
      const Value h0 = common.initial("hidden", steps);
      const Value c0 = common.initial("cell", steps);
      const auto made = ops::lstm(steps.x, steps.lengths, w, u, b, h0, c0, {.reverse = reverse});
      common.keep(steps, h0, made.h);
      common.keep(steps, c0, made.c);
      return Recurrence{made.y, made.h};
    });
  }
};

struct Gru : GruOptions {
  static constexpr bool kTakesSequences = true;
  Value build(LayerBuilder& layer, Value given) const {
    const RecurrentBuild<GruOptions> common{layer, *this, 3};
    return common.build(given, [&](const Steps& steps, const std::string& prefix, bool reverse) {
      const Value w = common.weights(prefix, steps.x.shape()[2]);
      const Value u = common.recurrent(prefix);
      const Value b = common.bias(prefix + "bias");
      const Value d = common.bias(prefix + "recurrent_bias");
      const Value h0 = common.initial("hidden", steps);
      const auto made = ops::gru(steps.x, steps.lengths, w, u, b, d, h0,
                                 {.reset_after = reset_after, .reverse = reverse});
      common.keep(steps, h0, made.h);
      return Recurrence{made.y, made.h};
    });
  }
};

struct Rnn : RnnOptions {
  static constexpr bool kTakesSequences = true;
  Value build(LayerBuilder& layer, Value given) const {
    const RecurrentBuild<RnnOptions> common{layer, *this, 1};
    const auto kind = activation == "relu" ? ops::RnnActivation::relu : ops::RnnActivation::tanh;
    return common.build(given, [&](const Steps& steps, const std::string& prefix, bool reverse) {
      const Value w = common.weights(prefix, steps.x.shape()[2]);
      const Value u = common.recurrent(prefix);
      const Value b = common.bias(prefix + "bias");
      const Value h0 = common.initial("hidden", steps);
      const auto made =
          ops::rnn(steps.x, steps.lengths, w, u, b, h0, {.activation = kind, .reverse = reverse});
      common.keep(steps, h0, made.h);
      return Recurrence{made.y, made.h};
    });
  }
};

}  // namespace

void LstmOptions::visit(FieldVisitor& v) { visit_recurrent(v, *this); }

void GruOptions::visit(FieldVisitor& v) {
  visit_recurrent(v, *this);
  v.flag("reset_after", reset_after,
         "the reset gate multiplies after the recurrent product (PyTorch, cuDNN), else before it");
}

void RnnOptions::visit(FieldVisitor& v) {
  visit_recurrent(v, *this);
  v.text("activation", activation, "activation of the hidden state", {"tanh", "relu"});
}

LayerPtr lstm(LstmOptions options) { return custom_layer(Lstm{std::move(options)}); }
LayerPtr gru(GruOptions options) { return custom_layer(Gru{std::move(options)}); }
LayerPtr rnn(RnnOptions options) { return custom_layer(Rnn{std::move(options)}); }

LayerInfo layers::lstm_info() { return layer_info<Lstm>(); }
LayerInfo layers::gru_info() { return layer_info<Gru>(); }
LayerInfo layers::rnn_info() { return layer_info<Rnn>(); }

}  // namespace lockstep
