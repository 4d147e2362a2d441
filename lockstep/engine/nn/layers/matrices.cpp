// Layers of matrix products.
#include "lockstep/engine/nn/custom_layer.h"
#include "lockstep/engine/nn/layers.h"
#include "lockstep/engine/nn/layers/registry.h"
#include "lockstep/engine/nn/layers/weights.h"

namespace lockstep {

void FullyConnectedOptions::visit(FieldVisitor& v) {
  v.integer("units", units, "number of outputs", {.min = 1, .max = 1 << 24, .required = true});
  visit_weights(v, *this, "a bias for each unit");
}

namespace {

struct FullyConnected : FullyConnectedOptions {
  Value build(LayerBuilder& layer, Value x) const {
    const int64_t elements = x.shape().without_batch().elements();
    const Weights w = declare_weights(layer, *this, Shape{units, elements}, units, elements, units);
    return ops::fully_connected(x, w.weights, w.bias);
  }
};

}  // namespace

LayerPtr fully_connected(FullyConnectedOptions options) {
  return custom_layer(FullyConnected{std::move(options)});
}

LayerInfo layers::fully_connected_info() { return layer_info<FullyConnected>(); }

}  // namespace lockstep
