#include "lockstep/base/error.h"
#include "lockstep/engine/nn/initializer.h"
#include "lockstep/engine/nn/layers.h"
#include "lockstep/engine/nn/layers/registry.h"
#include "lockstep/engine/ops/op_makers.h"
#include "lockstep/engine/ops/windows/window.h"

namespace lockstep {

void TransposedConvolution2dOptions::visit(FieldVisitor& v) {
  v.integer("filters", filters, "number of filters", {.min = 1, .max = 1 << 20, .required = true});
  v.size("kernel", kernel, "height and width of a filter", {.min = 1, .max = 1 << 14});
  v.size("stride", stride, "step of the filter", {.min = 1, .max = 1 << 14});
  v.padding("padding", padding, "cropped from the result, or \"same\": input size times stride");
  v.size("dilation", dilation, "spacing of the filter's elements; 1: adjacent",
         {.min = 1, .max = 1 << 14});
  v.integer("groups", groups, "number of groups (grouped convolution)", {.min = 1, .max = 1 << 20});
  v.flag("bias", bias, "a bias for each filter");
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

class TransposedConvolution2d final : public LayerWith<TransposedConvolution2dOptions> {
 public:
  using LayerWith::LayerWith;

  std::vector<ParameterSpec> parameters(std::span<const Shape> in) const override {
    const auto& o = options();
    ops::check_image("transposed_convolution2d", in[0]);
    if (in[0][1] % o.groups != 0 || o.filters % o.groups != 0) {
      throw InvalidArgument("[transposed_convolution2d] " + std::to_string(o.groups) +
                            " groups do not divide " + std::to_string(in[0][1]) + " channels and " +
                            std::to_string(o.filters) + " filters");
    }
    const Shape weights{in[0][1], o.filters / o.groups, o.kernel[0], o.kernel[1]};
    const int64_t window = o.kernel[0] * o.kernel[1];
    const int64_t fan_in = in[0][1] / o.groups * window, fan_out = o.filters / o.groups * window;
    std::vector<ParameterSpec> all{{"weights", weights, o.weights_initializer, fan_in, fan_out,
                                    o.weights_l2_factor, o.weights_learning_rate_factor}};
    if (o.bias) {
      all.push_back({"bias", Shape{o.filters}, o.bias_initializer, fan_in, fan_out,
                     o.bias_l2_factor, o.bias_learning_rate_factor});
    }
    return all;
  }

  int lower(LoweringLayer& context, std::span<const int> in) const override {
    const auto& o = options();
    std::vector<int> inputs{in[0], context.parameter(0)};
    if (o.bias) inputs.push_back(context.parameter(1));
    return context.add(
        ops::make_transposed_convolution2d({o.stride, o.padding, o.dilation, o.groups}, o.bias),
        inputs)[0];
  }
};

}  // namespace

LayerPtr transposed_convolution2d(TransposedConvolution2dOptions options) {
  return std::make_shared<TransposedConvolution2d>(options);
}

LayerInfo layers::transposed_convolution2d_info() {
  return layer_info<TransposedConvolution2d, TransposedConvolution2dOptions>();
}

}  // namespace lockstep
