#include "lockstep/engine/nn/layers.h"
#include "lockstep/engine/nn/layers/registry.h"
#include "lockstep/engine/ops/op_makers.h"

namespace lockstep {

namespace {

class Addition final : public LayerWith<AdditionOptions> {
 public:
  using LayerWith::LayerWith;
  int least_inputs() const override { return 2; }
  int most_inputs() const override { return 1 << 16; }
  int lower(LoweringLayer& context, std::span<const int> in) const override {
    return context.add(ops::make_addition(), {in.begin(), in.end()})[0];
  }
};

}  // namespace

LayerPtr addition() { return std::make_shared<Addition>(AdditionOptions{}); }

LayerInfo layers::addition_info() { return layer_info<Addition, AdditionOptions>(); }

}  // namespace lockstep
