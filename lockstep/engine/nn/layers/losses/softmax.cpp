#include "lockstep/engine/nn/layers.h"
#include "lockstep/engine/nn/layers/registry.h"
#include "lockstep/engine/ops/op_makers.h"

namespace lockstep {

namespace {

class Softmax final : public LayerWith<SoftmaxOptions> {
 public:
  using LayerWith::LayerWith;
  int lower(LoweringLayer& context, std::span<const int> in) const override {
    return context.add(ops::make_softmax(), {in[0]})[0];
  }
};

}  // namespace

LayerPtr softmax() { return std::make_shared<Softmax>(SoftmaxOptions{}); }

LayerInfo layers::softmax_info() { return layer_info<Softmax, SoftmaxOptions>(); }

}  // namespace lockstep
