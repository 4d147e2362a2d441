#include "lockstep/engine/graph/value.h"
#include "lockstep/engine/nn/formulas/formula_parser.h"
#include "lockstep/engine/nn/formulas/formula_values.h"
#include "lockstep/engine/nn/layers.h"
#include "lockstep/engine/nn/layers/registry.h"
#include "lockstep/engine/ops/shapes/views.h"

namespace lockstep {
namespace {

Formula parsed_function(const std::string& expression) {
  return parse_formula(expression, "[function] expression");
}

// The names of a layer's inputs: x, or x1, x2, ....
FormulaNames names_for(size_t inputs) {
  FormulaNames names;
  if (inputs == 1) names.values.emplace_back("x");
  for (size_t k = 1; k <= inputs && inputs > 1; ++k)
    names.values.push_back("x" + std::to_string(k));
  return names;
}

class Function final : public LayerWith<FunctionOptions> {
 public:
  using LayerWith::LayerWith;
  int most_inputs() const override { return 1000; }

  int lower(LoweringLayer& context, std::span<const int> in) const override {
    const Formula formula = parsed_function(options().expression);
    const FormulaNames names = names_for(in.size());
    std::vector<Value> values;
    for (const int number : in) values.emplace_back(&context, number);
    const Value result = formula_value(formula, names, values);
    for (const std::string& name : names.values) {
      if (uses_of_name(formula, name) > 0) continue;
      refuse_formula(formula, {0, formula.text.size()}, "the input `" + name + "` is not used");
    }
    // One number for each observation is one channel.
    if (result.shape().rank() > 1) return result.number();
    return ops::reshaped(result, Shape{result.shape()[0], 1}).number();
  }
};

}  // namespace

void FunctionOptions::visit(FieldVisitor& v) {
  v.text("expression", expression,
         "the result from x, or from x1, x2, ... of several inputs, with functions of "
         "lockstep::ops: x * sigmoid(1.7 * x)");
}

LayerPtr function_layer(FunctionOptions options) {
  return std::make_shared<Function>(std::move(options));
}

LayerInfo layers::function_info() { return layer_info<Function, FunctionOptions>(); }

}  // namespace lockstep
