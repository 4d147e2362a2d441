#include "lockstep/engine/nn/layers.h"
#include "lockstep/engine/nn/layers/registry.h"
#include "lockstep/engine/ops/pooling2d.h"

namespace lockstep {

namespace {

class GlobalAveragePooling2d final : public LayerWith<GlobalAveragePooling2dOptions> {
 public:
  using LayerWith::LayerWith;
  int lower(LoweringLayer& context, std::span<const int> in) const override {
    return context.add(ops::make_global_average_pooling2d(), {in[0]})[0];
  }
};

}  // namespace

LayerPtr global_average_pooling2d() {
  return std::make_shared<GlobalAveragePooling2d>(GlobalAveragePooling2dOptions{});
}

LayerInfo layers::global_average_pooling2d_info() {
  return layer_info<GlobalAveragePooling2d, GlobalAveragePooling2dOptions>();
}

}  // namespace lockstep
