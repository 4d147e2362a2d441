#include "lockstep/engine/nn/layers.h"
#include "lockstep/engine/nn/layers/registry.h"
#include "lockstep/engine/ops/pooling2d.h"

namespace lockstep {

void MaxPooling2dOptions::visit(FieldVisitor& v) {
  v.size("pool", pool, "rows and columns of a window", {.min = 1, .max = 1 << 14});
  v.size("stride", stride, "step of the window", {.min = 1, .max = 1 << 14});
  v.padding("padding", padding, "around the input, never the maximum; or \"same\"");
}

namespace {

class MaxPooling2d final : public LayerWith<MaxPooling2dOptions> {
 public:
  using LayerWith::LayerWith;
  int lower(LoweringLayer& context, std::span<const int> in) const override {
    const auto& o = options();
    return context.add(ops::make_max_pooling2d({o.pool, o.stride, o.padding, true}), {in[0]})[0];
  }
};

}  // namespace

LayerPtr max_pooling2d(MaxPooling2dOptions options) {
  return std::make_shared<MaxPooling2d>(options);
}

LayerInfo layers::max_pooling2d_info() { return layer_info<MaxPooling2d, MaxPooling2dOptions>(); }

}  // namespace lockstep
