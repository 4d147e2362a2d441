// Custom layers, built from ops in a few lines:
//
//   struct Gated {
//     static constexpr const char* kType = "gated";
//     static constexpr const char* kHelp = "gates a convolution with a second convolution";
//     int64_t filters = 0;
//     void visit(FieldVisitor& v) { v.integer("filters", filters, "", {.min = 1}); }
//
//     Value build(LayerBuilder& layer, Value x) const {
//       const Shape shape{filters, x.shape()[1], 1, 1};
//       const Value weights = layer.parameter("weights", shape);
//       const Value gates = layer.parameter("gate_weights", shape);
//       return ops::convolution2d(x, weights, {}) * ops::sigmoid(ops::convolution2d(x, gates, {}));
//     }
//   };
//
//   network.add(custom_layer(Gated{.filters = 8}));
//   register_layer<Gated>();  // job files and model files now know { type = "gated", ... }
//
// Gradients follow from the ops. Plans, GPUs, trainers and files treat a custom layer like any
// other layer.
//
// Results of a custom layer cannot depend on the number of workers or threads. build() sees shapes,
// never data. A layer therefore keeps nothing between mini-batches except the states that it
// declares, and a rule combines their values over shards. build() runs several times for different
// numbers of observations and must make the same calls each time. If a later call requests other
// parameters, states or kinds of ops, it throws InvalidArgument while the network is compiled.
// Numbers inside ops, such as a probability, are not compared.
#pragma once

#include <concepts>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/fields.h"
#include "lockstep/engine/nn/layer.h"
#include "lockstep/engine/ops/ops.h"

namespace lockstep {

class LayerBuilder;

// Passed to build(). All functions throw InvalidArgument, naming the layer, for arguments that do
// not fit.
class LayerBuilder : private ValueBuilder {
 public:
  LayerBuilder(const LayerBuilder&) = delete;
  LayerBuilder& operator=(const LayerBuilder&) = delete;

  bool training() const;
  // The layer's name in its network. key_from_text(name()) is a key for an op's random numbers.
  const std::string& name() const;

  // Declares a parameter. Parameters and states are numbered in the order of their declarations, so
  // declare each in its own statement: C++ evaluates the arguments of a call in any order. The name
  // is unique in the layer; see ParameterSpec for initializers. fan_in and fan_out are computed as
  // for weights of o x i x .... Pass a ParameterSpec to set them explicitly.
  Value parameter(const std::string& name, const Shape& shape,
                  const std::string& initializer = "glorot");
  Value parameter(const ParameterSpec& spec);
  // Declares a state: values that are kept between iterations without being learned. A state
  // changes only by one of the rules below, after training iterations; without a rule it keeps its
  // initial value. The returned value is the state before the iteration.
  Value state(const std::string& name, const Shape& shape, float initial = 0);

  // The rules. Each one takes a state and a value of the same shape that is computed from one
  // shard. The new state follows the whole mini-batch and does not depend on the division into
  // shards. Outside training the rules have no effect. A state has at most one rule.
  //
  // follow_mean(): `mean` is the mean over the shard's observations. state = (1 - momentum) * state
  // + momentum * (mean over the mini-batch).
  void follow_mean(Value state, Value mean, double momentum = 0.1);
  // The same for a mean and a variance (divided by the count), which is combined exactly.
  void follow_mean_and_variance(Value mean_state, Value variance_state, Value mean, Value variance,
                                double momentum = 0.1);
  // state = state + (sum over the mini-batch).
  void add_sum(Value state, Value sum);
  // state = max(state, largest of the mini-batch), element by element.
  void keep_maximum(Value state, Value maximum);

 private:
  friend class BuiltLayer;
  struct Declared;
  LayerBuilder(LoweringLayer& context, Declared& declared, bool declaring);
  TensorSpec spec_of(int value) const override;
  std::vector<int> add(OpPtr op, std::vector<int> inputs) override;
  Value value(int number);
  int number_of(const Value& value) const;
  int state_place(const Value& state);
  void note(const std::string& what, const std::vector<Value>& values);
  void follow(StateRule rule, Value state, Value value, double momentum);

  LoweringLayer& context_;
  Declared& declared_;
  bool declaring_;
  std::vector<int> values_;                  // numbers, in order of creation
  std::vector<std::pair<int, int>> states_;  // number of the value, index in states()
  std::vector<int> followed_;                // indices of states that have a rule
  std::vector<std::string> notes_;
};

// Base class of custom layers; use custom_layer().
class BuiltLayer : public Layer {
 public:
  std::vector<ParameterSpec> parameters(std::span<const Shape> inputs) const final;
  std::vector<StateSpec> states(std::span<const Shape> inputs) const final;
  int lower(LoweringLayer& context, std::span<const int> inputs) const final;

 protected:
  virtual Value build(LayerBuilder& layer, const std::vector<Value>& inputs) const = 0;

 private:
  LayerBuilder::Declared declare(std::span<const Shape> inputs, bool training,
                                 const std::string& name, std::vector<std::string>& notes) const;
};

template <class L>
concept BuildsOne = requires(const L& l, LayerBuilder& b, Value x) {
  { l.build(b, x) } -> std::same_as<Value>;
};
template <class L>
concept BuildsSeveral = requires(const L& l, LayerBuilder& b, const std::vector<Value>& x) {
  { l.build(b, x) } -> std::same_as<Value>;
};
// A copyable struct with kType, kHelp, visit(FieldVisitor&) and Value build(LayerBuilder&, Value)
// const. For several inputs, build() takes const std::vector<Value>&.
template <class L>
concept CustomLayer = std::semiregular<L> &&
    (BuildsOne<L> || BuildsSeveral<L>)&&requires(L l, FieldVisitor& v) {
  { L::kType } -> std::convertible_to<const char*>;
  { L::kHelp } -> std::convertible_to<const char*>;
  l.visit(v);
};

template <CustomLayer L>
class BuiltLayerOf final : public BuiltLayer {
 public:
  using Options = L;
  explicit BuiltLayerOf(L layer) : layer_(std::move(layer)) {}
  std::string_view type() const override { return L::kType; }
  void visit(FieldVisitor& visitor) const override {
    L copy = layer_;
    copy.visit(visitor);
  }
  void visit_defaults(FieldVisitor& visitor) const override {
    L defaults;
    defaults.visit(visitor);
  }
  int most_inputs() const override { return BuildsOne<L> ? 1 : 1 << 16; }

 protected:
  Value build(LayerBuilder& builder, const std::vector<Value>& inputs) const override {
    if constexpr (BuildsOne<L>) {
      return layer_.build(builder, inputs[0]);
    } else {
      return layer_.build(builder, inputs);
    }
  }

 private:
  L layer_;
};

template <CustomLayer L>
LayerPtr custom_layer(L layer) {
  return std::make_shared<BuiltLayerOf<L>>(std::move(layer));
}

// Adds the type to layer_registry(), so that job files and model files can contain it. Not
// thread-safe: call it at program start, before networks are read. Throws InvalidArgument if the
// type is already registered.
template <CustomLayer L>
void register_layer() {
  add_to_layer_registry(layer_info<BuiltLayerOf<L>, L>());
}

}  // namespace lockstep
