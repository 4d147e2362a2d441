#include "lockstep/base/numeric/random.h"
#include "lockstep/engine/nn/layers.h"
#include "lockstep/engine/nn/layers/registry.h"
#include "lockstep/engine/ops/op_makers.h"

namespace lockstep {

void DropoutOptions::visit(FieldVisitor& v) {
  v.number("probability", probability, "probability that an element is dropped",
           {.min = 0, .max = 1, .max_excluded = true});
}

namespace {

class Dropout final : public LayerWith<DropoutOptions> {
 public:
  using LayerWith::LayerWith;
  int lower(LoweringLayer& context, std::span<const int> in) const override {
    if (!context.training()) return in[0];
    return context.add(ops::make_dropout(options().probability, key_from_text(context.name())),
                       {in[0]})[0];
  }
};

}  // namespace

LayerPtr dropout(DropoutOptions options) { return std::make_shared<Dropout>(options); }

LayerInfo layers::dropout_info() { return layer_info<Dropout, DropoutOptions>(); }

}  // namespace lockstep
