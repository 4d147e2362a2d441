#include "lockstep/engine/nn/layers.h"
#include "lockstep/engine/nn/layers/registry.h"
#include "lockstep/engine/ops/pooling2d.h"

namespace lockstep {

void AveragePooling2dOptions::visit(FieldVisitor& v) {
  v.size("pool", pool, "rows and columns of a window", {.min = 1, .max = 1 << 14});
  v.size("stride", stride, "step of the window", {.min = 1, .max = 1 << 14});
  v.padding("padding", padding, "zeros around the input, or \"same\"");
  v.flag("count_padding", count_padding, "divide by the whole window, padding included");
}

namespace {

class AveragePooling2d final : public LayerWith<AveragePooling2dOptions> {
 public:
  using LayerWith::LayerWith;
  int lower(LoweringLayer& context, std::span<const int> in) const override {
    const auto& o = options();
    return context.add(ops::make_average_pooling2d({o.pool, o.stride, o.padding, o.count_padding}),
                       {in[0]})[0];
  }
};

}  // namespace

LayerPtr average_pooling2d(AveragePooling2dOptions options) {
  return std::make_shared<AveragePooling2d>(options);
}

LayerInfo layers::average_pooling2d_info() {
  return layer_info<AveragePooling2d, AveragePooling2dOptions>();
}

}  // namespace lockstep
