// Elementwise layers, and expressions.
#include "lockstep/base/numeric/random.h"
#include "lockstep/engine/nn/custom_layer.h"
#include "lockstep/engine/nn/formulas/formula_parser.h"
#include "lockstep/engine/nn/formulas/formula_values.h"
#include "lockstep/engine/nn/layers.h"
#include "lockstep/engine/nn/layers/registry.h"

namespace lockstep {

void ClippedReluOptions::visit(FieldVisitor& v) {
  v.number("ceiling", ceiling, "upper limit of the output",
           {.min = 0, .max = 1e30, .min_excluded = true});
}

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

void DropoutOptions::visit(FieldVisitor& v) {
  v.number("probability", probability, "probability that an element is dropped",
           {.min = 0, .max = 1, .max_excluded = true});
}

void StochasticDepthOptions::visit(FieldVisitor& v) {
  v.number("probability", probability, "probability that an observation is dropped",
           {.min = 0, .max = 1, .max_excluded = true});
}

void FunctionOptions::visit(FieldVisitor& v) {
  v.text("expression", expression,
         "the result from x, or from x1, x2, ... of several inputs, with functions of "
         "lockstep::ops: x * sigmoid(1.7 * x)");
}

namespace {

Value activated(const ReluOptions&, Value x) { return ops::relu(x); }
Value activated(const ClippedReluOptions& o, Value x) { return ops::clipped_relu(x, o.ceiling); }
Value activated(const LeakyReluOptions& o, Value x) { return ops::leaky_relu(x, o.scale); }
Value activated(const EluOptions& o, Value x) { return ops::elu(x, o.alpha); }
Value activated(const GeluOptions& o, Value x) {
  return ops::gelu(
      x, o.approximation == "tanh" ? ops::GeluApproximation::tanh : ops::GeluApproximation::none);
}
Value activated(const SwishOptions&, Value x) { return ops::swish(x); }
// PyTorch's relu6(x + 3) / 6, with slope 0 at both limits.
Value activated(const HardSigmoidOptions&, Value x) { return ops::clipped_relu(x + 3, 6) / 6; }
Value activated(const HardSwishOptions&, Value x) { return x * ops::clipped_relu(x + 3, 6) / 6; }
Value activated(const TanhOptions&, Value x) { return ops::tanh(x); }
Value activated(const SigmoidOptions&, Value x) { return ops::sigmoid(x); }
Value activated(const SoftplusOptions&, Value x) { return ops::softplus(x); }

template <class Options>
struct Activation : Options {
  Value build(LayerBuilder&, Value x) const { return activated(*this, x); }
};

template <class Options>
LayerPtr make_activation(Options options) {
  return custom_layer(Activation<Options>{std::move(options)});
}

struct Dropout : DropoutOptions {
  static constexpr bool kTakesSequences = true;  // numbers of elements do not depend on padding
  Value build(LayerBuilder& layer, Value x) const {
    layer.in_segments();  // steps do not depend on others
    if (!layer.training()) return x;
    return ops::dropout(x, probability, key_from_text(layer.name()));
  }
};

struct StochasticDepth : StochasticDepthOptions {
  static constexpr bool kTakesSequences = true;  // a draw for an observation, not for each step
  Value build(LayerBuilder& layer, Value x) const {
    layer.in_segments();  // nothing is drawn there
    if (!layer.training() || probability == 0) return x;
    std::vector<int64_t> each(static_cast<size_t>(x.shape().rank()), 1);
    each[0] = x.shape()[0];
    const Value ones = ops::full_like(x, Shape(std::move(each)), 1);
    return x * ops::dropout(ones, probability, key_from_text(layer.name()));
  }
};

struct Addition : AdditionOptions {
  static constexpr int kLeastInputs = 2;
  Value build(LayerBuilder&, const std::vector<Value>& x) const { return ops::add(x); }
};

struct Multiplication : MultiplicationOptions {
  static constexpr int kLeastInputs = 2;
  Value build(LayerBuilder&, const std::vector<Value>& x) const { return ops::multiply(x); }
};

// The names of a layer's inputs: x, or x1, x2, ....
FormulaNames names_for(size_t inputs) {
  FormulaNames names;
  for (size_t k = 1; k <= inputs; ++k) {
    names.values.push_back(inputs == 1 ? "x" : "x" + std::to_string(k));
  }
  return names;
}

struct Function : FunctionOptions {
  static constexpr int kMostInputs = 1000;
  Value build(LayerBuilder&, const std::vector<Value>& x) const {
    const Formula formula = parse_formula(expression, "[function] expression");
    const FormulaNames names = names_for(x.size());
    const Value result = formula_value(formula, names, x);
    for (const std::string& name : names.values) {
      if (uses_of_name(formula, name) > 0) continue;
      refuse_formula(formula, {0, formula.text.size()}, "the input `" + name + "` is not used");
    }
    // One number for each observation is one channel.
    return result.shape().rank() > 1 ? result : ops::reshape(result, Shape{1});
  }
};

}  // namespace

LayerPtr relu() { return make_activation(ReluOptions{}); }
LayerPtr clipped_relu(ClippedReluOptions options) { return make_activation(options); }
LayerPtr leaky_relu(LeakyReluOptions options) { return make_activation(options); }
LayerPtr elu(EluOptions options) { return make_activation(options); }
LayerPtr gelu(GeluOptions options) { return make_activation(std::move(options)); }
LayerPtr swish() { return make_activation(SwishOptions{}); }
LayerPtr hard_swish() { return make_activation(HardSwishOptions{}); }
LayerPtr hard_sigmoid() { return make_activation(HardSigmoidOptions{}); }
LayerPtr tanh() { return make_activation(TanhOptions{}); }
LayerPtr sigmoid() { return make_activation(SigmoidOptions{}); }
LayerPtr softplus() { return make_activation(SoftplusOptions{}); }

LayerPtr dropout(DropoutOptions options) { return custom_layer(Dropout{options}); }

LayerPtr stochastic_depth(StochasticDepthOptions options) {
  return custom_layer(StochasticDepth{options});
}

LayerPtr function_layer(FunctionOptions options) {
  return custom_layer(Function{std::move(options)});
}

LayerPtr addition() { return custom_layer(Addition{}); }
LayerPtr multiplication() { return custom_layer(Multiplication{}); }

LayerInfo layers::relu_info() { return layer_info<Activation<ReluOptions>>(); }
LayerInfo layers::clipped_relu_info() { return layer_info<Activation<ClippedReluOptions>>(); }
LayerInfo layers::leaky_relu_info() { return layer_info<Activation<LeakyReluOptions>>(); }
LayerInfo layers::elu_info() { return layer_info<Activation<EluOptions>>(); }
LayerInfo layers::gelu_info() { return layer_info<Activation<GeluOptions>>(); }
LayerInfo layers::swish_info() { return layer_info<Activation<SwishOptions>>(); }
LayerInfo layers::hard_swish_info() { return layer_info<Activation<HardSwishOptions>>(); }
LayerInfo layers::hard_sigmoid_info() { return layer_info<Activation<HardSigmoidOptions>>(); }
LayerInfo layers::tanh_info() { return layer_info<Activation<TanhOptions>>(); }
LayerInfo layers::sigmoid_info() { return layer_info<Activation<SigmoidOptions>>(); }
LayerInfo layers::softplus_info() { return layer_info<Activation<SoftplusOptions>>(); }
LayerInfo layers::dropout_info() { return layer_info<Dropout>(); }
LayerInfo layers::stochastic_depth_info() { return layer_info<StochasticDepth>(); }
LayerInfo layers::function_info() { return layer_info<Function>(); }
LayerInfo layers::addition_info() { return layer_info<Addition>(); }
LayerInfo layers::multiplication_info() { return layer_info<Multiplication>(); }

}  // namespace lockstep
