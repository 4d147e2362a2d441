#include "lockstep/base/error.h"
#include "lockstep/engine/nn/layers.h"
#include "lockstep/engine/nn/layers/registry.h"
#include "lockstep/engine/ops/op_makers.h"

namespace lockstep {

void ReshapeOptions::visit(FieldVisitor& v) {
  v.integers("size", size, "channels, then the spatial sizes: [channels, height, width]",
             {.min = 1, .max = int64_t{1} << 31, .required = true});
}

namespace {

class Reshape final : public LayerWith<ReshapeOptions> {
 public:
  using LayerWith::LayerWith;
  int lower(LoweringLayer& context, std::span<const int> in) const override {
    const Shape observation(options().size);
    if (observation.rank() < 1 || observation.rank() > 4) {
      throw InvalidArgument(
          "[reshape] size must be channels and up to three extents of space, received " +
          observation.to_string());
    }
    return context.add(ops::make_reshape(observation), {in[0]})[0];
  }
};

}  // namespace

LayerPtr reshape(ReshapeOptions options) { return std::make_shared<Reshape>(std::move(options)); }

LayerInfo layers::reshape_info() { return layer_info<Reshape, ReshapeOptions>(); }

}  // namespace lockstep
