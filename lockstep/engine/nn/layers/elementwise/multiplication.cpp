#include "lockstep/engine/nn/layers.h"
#include "lockstep/engine/nn/layers/registry.h"
#include "lockstep/engine/ops/op_makers.h"

namespace lockstep {

namespace {

class Multiplication final : public LayerWith<MultiplicationOptions> {
 public:
  using LayerWith::LayerWith;
  int least_inputs() const override { return 2; }
  int most_inputs() const override { return 1 << 16; }
  int lower(LoweringLayer& context, std::span<const int> in) const override {
    return context.add(ops::make_multiplication(), {in.begin(), in.end()})[0];
  }
};

}  // namespace

LayerPtr multiplication() { return std::make_shared<Multiplication>(MultiplicationOptions{}); }

LayerInfo layers::multiplication_info() {
  return layer_info<Multiplication, MultiplicationOptions>();
}

}  // namespace lockstep
