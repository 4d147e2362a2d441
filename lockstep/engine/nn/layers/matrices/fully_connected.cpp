#include "lockstep/engine/nn/initializer.h"
#include "lockstep/engine/nn/layers.h"
#include "lockstep/engine/nn/layers/registry.h"
#include "lockstep/engine/ops/op_makers.h"

namespace lockstep {

void FullyConnectedOptions::visit(FieldVisitor& v) {
  v.integer("units", units, "number of outputs", {.min = 1, .max = 1 << 24, .required = true});
  v.flag("bias", bias, "a bias for each unit");
  v.text("weights_initializer", weights_initializer, "initializer of the weights",
         initializer_names());
  v.text("bias_initializer", bias_initializer, "initializer of the bias", initializer_names());
  v.number("weights_l2_factor", weights_l2_factor, "factor of the option l2 for the weights",
           {.min = 0});
  v.number("bias_l2_factor", bias_l2_factor, "factor of the option l2 for the bias", {.min = 0});
  v.number("weights_learning_rate_factor", weights_learning_rate_factor,
           "factor of the learning rate for the weights; 0: frozen", {.min = 0});
  v.number("bias_learning_rate_factor", bias_learning_rate_factor,
           "factor of the learning rate for the bias; 0: frozen", {.min = 0});
}

namespace {

class FullyConnected final : public LayerWith<FullyConnectedOptions> {
 public:
  using LayerWith::LayerWith;

  std::vector<ParameterSpec> parameters(std::span<const Shape> in) const override {
    const auto& o = options();
    const int64_t elements = in[0].without_batch().elements();
    std::vector<ParameterSpec> all{{"weights", Shape{o.units, elements}, o.weights_initializer,
                                    elements, o.units, o.weights_l2_factor,
                                    o.weights_learning_rate_factor}};
    if (o.bias) {
      all.push_back({"bias", Shape{o.units}, o.bias_initializer, elements, o.units,
                     o.bias_l2_factor, o.bias_learning_rate_factor});
    }
    return all;
  }

  int lower(LoweringLayer& context, std::span<const int> in) const override {
    std::vector<int> inputs{in[0], context.parameter(0)};
    if (options().bias) inputs.push_back(context.parameter(1));
    return context.add(ops::make_fully_connected(options().bias), inputs)[0];
  }
};

}  // namespace

LayerPtr fully_connected(FullyConnectedOptions options) {
  return std::make_shared<FullyConnected>(options);
}

LayerInfo layers::fully_connected_info() {
  return layer_info<FullyConnected, FullyConnectedOptions>();
}

}  // namespace lockstep
