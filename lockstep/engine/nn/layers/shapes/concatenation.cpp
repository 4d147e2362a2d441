#include "lockstep/engine/nn/layers.h"
#include "lockstep/engine/nn/layers/registry.h"
#include "lockstep/engine/ops/op_makers.h"

namespace lockstep {

namespace {

class Concatenation final : public LayerWith<ConcatenationOptions> {
 public:
  using LayerWith::LayerWith;
  int least_inputs() const override { return 2; }
  int most_inputs() const override { return 1 << 16; }
  int lower(LoweringLayer& context, std::span<const int> in) const override {
    return context.add(ops::make_concatenation(1), {in.begin(), in.end()})[0];
  }
};

}  // namespace

LayerPtr concatenation() { return std::make_shared<Concatenation>(ConcatenationOptions{}); }

LayerInfo layers::concatenation_info() { return layer_info<Concatenation, ConcatenationOptions>(); }

}  // namespace lockstep
