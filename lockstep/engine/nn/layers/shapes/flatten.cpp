#include "lockstep/engine/nn/layers.h"
#include "lockstep/engine/nn/layers/registry.h"
#include "lockstep/engine/ops/op_makers.h"

namespace lockstep {

namespace {

class Flatten final : public LayerWith<FlattenOptions> {
 public:
  using LayerWith::LayerWith;
  int lower(LoweringLayer& context, std::span<const int> in) const override {
    return context.add(ops::make_flatten(), {in[0]})[0];
  }
};

}  // namespace

LayerPtr flatten() { return std::make_shared<Flatten>(FlattenOptions{}); }

LayerInfo layers::flatten_info() { return layer_info<Flatten, FlattenOptions>(); }

}  // namespace lockstep
