// Layers before a loss.
#include "lockstep/engine/nn/custom_layer.h"
#include "lockstep/engine/nn/layers.h"
#include "lockstep/engine/nn/layers/registry.h"

namespace lockstep {
namespace {

struct Softmax : SoftmaxOptions {
  Value build(LayerBuilder&, Value x) const { return ops::softmax(x); }
};

}  // namespace

LayerPtr softmax() { return custom_layer(Softmax{}); }

LayerInfo layers::softmax_info() { return layer_info<Softmax>(); }

}  // namespace lockstep
