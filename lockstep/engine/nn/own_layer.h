// Layers of one's own, in a few lines from ops:
//
//   struct Gated {
//     static constexpr const char* kType = "gated";
//     static constexpr const char* kHelp = "lets through what a second convolution says";
//     int64_t filters = 0;
//     void visit(FieldVisitor& v) { v.integer("filters", filters, "", {.min = 1}); }
//
//     Value build(LayerBuilder& layer, Value x) const {
//       const Shape weights{filters, x.shape()[1], 1, 1};
//       const Value y = layer.apply(ops::make_convolution2d({}, false),
//                                   {x, layer.learnable("weights", weights)});
//       const Value gate = layer.apply(ops::make_convolution2d({}, false),
//                                      {x, layer.learnable("gate_weights", weights)});
//       return y * layer.apply(ops::make_sigmoid(), {gate});
//     }
//   };
//
//   network.add(own_layer(Gated{.filters = 8}));
//   register_layer<Gated>();  // and job files and model files know { type = "gated", ... }
//
// Gradients follow from the ops; plans, GPUs, trainers and files treat it as any other layer.
//
// The law holds by construction: build() sees shapes, never data, so a layer can keep nothing from
// one mini-batch to the next but the state that it declares, whose values are combined over shards
// by a rule. build() runs several times, for several numbers of observations, and must say the same
// each time: while a network is compiled, a layer that asks for other learnables, state or kinds of
// ops than a moment before is refused (numbers inside ops, a probability say, are not compared).
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

// A value while a layer is built: an input, a learnable, a state or an op's output. Only valid
// within build().
class Value {
 public:
  // With observations in front.
  Shape shape() const;
  // Sum and product, element by element, of values of one shape.
  friend Value operator+(Value a, Value b);
  friend Value operator*(Value a, Value b);

 private:
  friend class LayerBuilder;
  Value(LayerBuilder* builder, int number) : builder_(builder), number_(number) {}
  LayerBuilder* builder_;
  int number_;
};

// What build() is given. All functions throw InvalidArgument for what does not fit, naming it.
class LayerBuilder {
 public:
  LayerBuilder(const LayerBuilder&) = delete;
  LayerBuilder& operator=(const LayerBuilder&) = delete;

  bool training() const;
  // Of the layer in its network; key_from_text(name()) keys an op's random numbers.
  const std::string& name() const;

  // A learnable, by a name of its own; see nn/initializer.h for initialisers. Inputs and outputs
  // that feed it are counted as for weights of o x i x ...; ParameterSpec says them by hand.
  Value learnable(const std::string& name, const Shape& shape,
                  const std::string& initializer = "glorot");
  Value learnable(const ParameterSpec& spec);
  // Something that is kept from iteration to iteration without being learned. It changes only by
  // one of the rules below, after training iterations; without one it stays as it begins. Reading
  // gives its value before the iteration.
  Value state(const std::string& name, const Shape& shape, float initial = 0);

  // The outputs of an op (ops::make_...).
  Value apply(OpPtr op, const std::vector<Value>& inputs);
  std::vector<Value> apply_all(OpPtr op, const std::vector<Value>& inputs);

  // The rules, each for a state and a value of its shape that is computed from one shard; the
  // states' new values are those of the mini-batch, whatever the shards. Outside training they do
  // nothing. A state has at most one.
  //
  // `mean` is a mean over the shard's observations:
  // state = (1 - momentum) * state + momentum * (mean over the mini-batch).
  void follow_mean(Value state, Value mean, double momentum = 0.1);
  // The same for a variance (divided by the count) about its mean, which is combined exactly.
  void follow_mean_and_variance(Value mean_state, Value variance_state, Value mean, Value variance,
                                double momentum = 0.1);
  // state = state + (sum over the mini-batch).
  void add_sum(Value state, Value sum);
  // state = max(state, largest of the mini-batch), element by element.
  void keep_maximum(Value state, Value maximum);

 private:
  friend class BuiltLayer;
  friend class Value;
  struct Declared;
  LayerBuilder(LoweringLayer& context, Declared& declared, bool declaring);
  Value value(int number);
  int number_of(const Value& value) const;
  int state_place(const Value& state);
  void note(const std::string& what, const std::vector<Value>& values);
  void follow(StateRule rule, Value state, Value value, double momentum);

  LoweringLayer& context_;
  Declared& declared_;
  bool declaring_;
  std::vector<int> values_;                  // numbers, in the order of making
  std::vector<std::pair<int, int>> states_;  // number, place
  std::vector<int> followed_;                // places
  std::vector<std::string> notes_;
};

// What own layers have in common; use own_layer().
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
// A copyable struct with kType, kHelp, visit(FieldVisitor&) and
// Value build(LayerBuilder&, Value) const, or with const std::vector<Value>& for several inputs.
template <class L>
concept OwnLayer = std::semiregular<L> &&
    (BuildsOne<L> || BuildsSeveral<L>)&&requires(L l, FieldVisitor& v) {
  { L::kType } -> std::convertible_to<const char*>;
  { L::kHelp } -> std::convertible_to<const char*>;
  l.visit(v);
};

template <OwnLayer L>
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

template <OwnLayer L>
LayerPtr own_layer(L layer) {
  return std::make_shared<BuiltLayerOf<L>>(std::move(layer));
}

// Adds the type to layer_registry(), so that job files and model files may hold it. At the start of
// a program, before networks are read: not thread-safe. Throws InvalidArgument for a type that is
// there already.
template <OwnLayer L>
void register_layer() {
  add_to_layer_registry(layer_info<BuiltLayerOf<L>, L>());
}

}  // namespace lockstep
