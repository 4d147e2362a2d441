#include "lockstep/engine/nn/layers.h"
#include "lockstep/engine/nn/layers/registry.h"
#include "lockstep/engine/ops/op_makers.h"

namespace lockstep {

void ClippedReluOptions::visit(FieldVisitor& v) {
  v.number("ceiling", ceiling, "upper limit of the output",
           {.min = 0, .max = 1e30, .min_excluded = true});
}

namespace {

class ClippedRelu final : public LayerWith<ClippedReluOptions> {
 public:
  using LayerWith::LayerWith;
  int lower(LoweringLayer& context, std::span<const int> in) const override {
    return context.add(ops::make_clipped_relu(options().ceiling), {in[0]})[0];
  }
};

}  // namespace

LayerPtr clipped_relu(ClippedReluOptions options) { return std::make_shared<ClippedRelu>(options); }

LayerInfo layers::clipped_relu_info() { return layer_info<ClippedRelu, ClippedReluOptions>(); }

}  // namespace lockstep
