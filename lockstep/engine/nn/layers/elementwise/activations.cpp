// The layers for the ops in ops/elementwise/activation.cpp.
#include "lockstep/engine/nn/layers.h"
#include "lockstep/engine/nn/layers/registry.h"
#include "lockstep/engine/ops/ops.h"

namespace lockstep {

void LeakyReluOptions::visit(FieldVisitor& v) {
  v.number("scale", scale, "slope for x < 0", {.min = 0, .max = 1e30});
}

void EluOptions::visit(FieldVisitor& v) {
  v.number("alpha", alpha, "ELU tends to -alpha for x -> -infinity", {.min = 0, .max = 1e30});
}

void GeluOptions::visit(FieldVisitor& v) {
  v.text("approximation", approximation, "\"none\": exact (erf); \"tanh\": the tanh approximation",
         {"none", "tanh"});
}

namespace {

OpPtr op_of(const LeakyReluOptions& o) { return ops::make_leaky_relu(o.scale); }
OpPtr op_of(const EluOptions& o) { return ops::make_elu(o.alpha); }
OpPtr op_of(const GeluOptions& o) {
  return ops::make_gelu(o.approximation == "tanh" ? ops::GeluApproximation::tanh
                                                  : ops::GeluApproximation::none);
}
OpPtr op_of(const SwishOptions&) { return ops::make_swish(); }
OpPtr op_of(const TanhOptions&) { return ops::make_tanh(); }
OpPtr op_of(const SigmoidOptions&) { return ops::make_sigmoid(); }
OpPtr op_of(const SoftplusOptions&) { return ops::make_softplus(); }

template <class Options>
class Activation final : public LayerWith<Options> {
 public:
  using LayerWith<Options>::LayerWith;
  int lower(LoweringLayer& context, std::span<const int> in) const override {
    return context.add(op_of(this->options()), {in[0]})[0];
  }
};

template <class Options>
LayerPtr make(Options options) {
  return std::make_shared<Activation<Options>>(std::move(options));
}

template <class Options>
LayerInfo info() {
  return layer_info<Activation<Options>, Options>();
}

}  // namespace

LayerPtr leaky_relu(LeakyReluOptions options) { return make(options); }
LayerPtr elu(EluOptions options) { return make(options); }
LayerPtr gelu(GeluOptions options) { return make(std::move(options)); }
LayerPtr swish() { return make(SwishOptions{}); }
LayerPtr tanh() { return make(TanhOptions{}); }
LayerPtr sigmoid() { return make(SigmoidOptions{}); }
LayerPtr softplus() { return make(SoftplusOptions{}); }

LayerInfo layers::leaky_relu_info() { return info<LeakyReluOptions>(); }
LayerInfo layers::elu_info() { return info<EluOptions>(); }
LayerInfo layers::gelu_info() { return info<GeluOptions>(); }
LayerInfo layers::swish_info() { return info<SwishOptions>(); }
LayerInfo layers::tanh_info() { return info<TanhOptions>(); }
LayerInfo layers::sigmoid_info() { return info<SigmoidOptions>(); }
LayerInfo layers::softplus_info() { return info<SoftplusOptions>(); }

}  // namespace lockstep
