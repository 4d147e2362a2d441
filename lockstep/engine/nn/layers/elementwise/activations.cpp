// The layers for the ops in ops/elementwise/activation.cpp.
#include "lockstep/engine/nn/layers.h"
#include "lockstep/engine/nn/layers/registry.h"
#include "lockstep/engine/ops/op_makers.h"

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

OpPtr activation_op(const LeakyReluOptions& o) { return ops::make_leaky_relu(o.scale); }
OpPtr activation_op(const EluOptions& o) { return ops::make_elu(o.alpha); }
OpPtr activation_op(const GeluOptions& o) {
  return ops::make_gelu(o.approximation == "tanh" ? ops::GeluApproximation::tanh
                                                  : ops::GeluApproximation::none);
}
OpPtr activation_op(const SwishOptions&) { return ops::make_swish(); }
OpPtr activation_op(const TanhOptions&) { return ops::make_tanh(); }
OpPtr activation_op(const SigmoidOptions&) { return ops::make_sigmoid(); }
OpPtr activation_op(const SoftplusOptions&) { return ops::make_softplus(); }

template <class Options>
class Activation final : public LayerWith<Options> {
 public:
  using LayerWith<Options>::LayerWith;
  int lower(LoweringLayer& context, std::span<const int> in) const override {
    return context.add(activation_op(this->options()), {in[0]})[0];
  }
};

template <class Options>
LayerPtr make_activation(Options options) {
  return std::make_shared<Activation<Options>>(std::move(options));
}

template <class Options>
LayerInfo activation_info() {
  return layer_info<Activation<Options>, Options>();
}

}  // namespace

LayerPtr leaky_relu(LeakyReluOptions options) { return make_activation(options); }
LayerPtr elu(EluOptions options) { return make_activation(options); }
LayerPtr gelu(GeluOptions options) { return make_activation(std::move(options)); }
LayerPtr swish() { return make_activation(SwishOptions{}); }
LayerPtr tanh() { return make_activation(TanhOptions{}); }
LayerPtr sigmoid() { return make_activation(SigmoidOptions{}); }
LayerPtr softplus() { return make_activation(SoftplusOptions{}); }

LayerInfo layers::leaky_relu_info() { return activation_info<LeakyReluOptions>(); }
LayerInfo layers::elu_info() { return activation_info<EluOptions>(); }
LayerInfo layers::gelu_info() { return activation_info<GeluOptions>(); }
LayerInfo layers::swish_info() { return activation_info<SwishOptions>(); }
LayerInfo layers::tanh_info() { return activation_info<TanhOptions>(); }
LayerInfo layers::sigmoid_info() { return activation_info<SigmoidOptions>(); }
LayerInfo layers::softplus_info() { return activation_info<SoftplusOptions>(); }

}  // namespace lockstep
