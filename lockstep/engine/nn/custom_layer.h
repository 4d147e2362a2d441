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
// Gradients follow from the ops. The layers of layers.h are written in the same way
// (engine/nn/layers).
//
// Results of a custom layer cannot depend on the number of workers or threads. build() sees shapes,
// never data. A layer therefore keeps nothing between mini-batches except the states that it
// declares: those of the network, whose values a rule combines over shards, and those of rows.
// build() runs several times for different numbers of observations and must make the same calls
// each time. If a later call requests other parameters, states or kinds of ops, it throws
// InvalidArgument while the network is compiled. Numbers inside ops, such as a probability, are not
// compared.
#pragma once

#include <concepts>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/base/fields.h"
#include "lockstep/engine/nn/layer.h"
#include "lockstep/engine/ops/ops.h"

namespace lockstep {

template <class L>
concept BuildsOne = requires(const L& l, LayerBuilder& b, Value x) {
  { l.build(b, x) } -> std::same_as<Value>;
};
template <class L>
concept BuildsSeveral = requires(const L& l, LayerBuilder& b, const std::vector<Value>& x) {
  { l.build(b, x) } -> std::same_as<Value>;
};
// A copyable struct with kType, kHelp, visit(FieldVisitor&) and Value build(LayerBuilder&, Value)
// const. For several inputs, build() takes const std::vector<Value>&; kLeastInputs (1) and
// kMostInputs (65,536) may set their number; both are 1 or more. With `static constexpr bool
// kTakesSequences = true`, build() receives sequences as a whole (LayerBuilder::lengths());
// otherwise the layer is applied to each of their steps.
template <class L>
concept CustomLayer = std::semiregular<L> &&
    (BuildsOne<L> || BuildsSeveral<L>)&&requires(L l, FieldVisitor& v) {
  { L::kType } -> std::convertible_to<const char*>;
  { L::kHelp } -> std::convertible_to<const char*>;
  l.visit(v);
};

// The layer that such a struct describes; use custom_layer().
template <CustomLayer L>
class LayerOf : public Layer {
 public:
  explicit LayerOf(L layer) : layer_(std::move(layer)) {}
  std::string_view type() const final { return L::kType; }
  void visit(FieldVisitor& visitor) const final {
    L copy = layer_;
    copy.visit(visitor);
  }
  void visit_defaults(FieldVisitor& visitor) const final {
    L defaults;
    defaults.visit(visitor);
  }
  int least_inputs() const override {
    if constexpr (requires { L::kLeastInputs; }) {
      static_assert(L::kLeastInputs >= 1);
      return L::kLeastInputs;
    }
    return 1;
  }
  int most_inputs() const override {
    if constexpr (requires { L::kMostInputs; }) {
      static_assert(BuildsSeveral<L> || L::kMostInputs == 1);
      return L::kMostInputs;
    }
    return BuildsOne<L> ? 1 : 1 << 16;
  }
  bool takes_sequences() const override {
    if constexpr (requires { L::kTakesSequences; }) return L::kTakesSequences;
    return false;
  }
  Value build(LayerBuilder& builder, const std::vector<Value>& inputs) const final {
    if constexpr (BuildsOne<L>) {
      return layer_.build(builder, inputs[0]);
    } else {
      return layer_.build(builder, inputs);
    }
  }

 protected:
  const L& layer() const { return layer_; }

 private:
  L layer_;
};

// The entry of the registry.
template <CustomLayer L, class Made = LayerOf<L>>
LayerInfo layer_info() {
  FieldLister lister;
  L defaults;
  defaults.visit(lister);
  return {L::kType, L::kHelp,
          [](FieldReader& reader) -> LayerPtr {
            L layer;
            layer.visit(reader);
            return std::make_shared<Made>(std::move(layer));
          },
          lister.fields};
}

template <CustomLayer L>
LayerPtr custom_layer(L layer) {
  return std::make_shared<LayerOf<L>>(std::move(layer));
}

// Adds the type to layer_registry(), so that job files and model files can contain it. Not
// thread-safe: call it at program start, before networks are read. Throws InvalidArgument if the
// type is already registered.
template <CustomLayer L>
void register_layer() {
  add_to_layer_registry(layer_info<L>());
}

}  // namespace lockstep
