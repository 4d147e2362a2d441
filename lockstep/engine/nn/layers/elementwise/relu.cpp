#include "lockstep/engine/nn/layers.h"
#include "lockstep/engine/nn/layers/registry.h"
#include "lockstep/engine/ops/op_makers.h"

namespace lockstep {

namespace {

class Relu final : public LayerWith<ReluOptions> {
 public:
  using LayerWith::LayerWith;
  int lower(LoweringLayer& context, std::span<const int> in) const override {
    return context.add(ops::make_relu(), {in[0]})[0];
  }
};

}  // namespace

LayerPtr relu() { return std::make_shared<Relu>(ReluOptions{}); }

LayerInfo layers::relu_info() { return layer_info<Relu, ReluOptions>(); }

}  // namespace lockstep
