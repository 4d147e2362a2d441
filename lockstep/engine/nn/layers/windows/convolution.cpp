// Convolutions along one, two and three axes.
#include "lockstep/engine/ops/windows/convolution.h"

#include "lockstep/base/error.h"
#include "lockstep/engine/nn/initializer.h"
#include "lockstep/engine/nn/layers.h"
#include "lockstep/engine/nn/layers/registry.h"
#include "lockstep/engine/nn/layers/windows/window_fields.h"

namespace lockstep {
namespace {

template <class Options>
void visit_fields(FieldVisitor& v, Options& o, const char* kernel_help) {
  v.integer("filters", o.filters, "number of filters",
            {.min = 1, .max = 1 << 20, .required = true});
  visit_sizes(v, "kernel", o.kernel, kernel_help);
  visit_sizes(v, "stride", o.stride, "step of the filter");
  v.padding("padding", o.padding, "zeros around the input, or \"same\"");
  visit_sizes(v, "dilation", o.dilation, "spacing of the filter's elements; 1: adjacent");
  v.integer("groups", o.groups, "number of groups (grouped convolution)",
            {.min = 1, .max = 1 << 20});
  v.flag("bias", o.bias, "a bias for each filter");
  v.text("weights_initializer", o.weights_initializer, "initializer of the weights",
         initializer_names());
  v.text("bias_initializer", o.bias_initializer, "initializer of the bias", initializer_names());
  v.number("weights_l2_factor", o.weights_l2_factor, "factor of the option l2 for the weights",
           {.min = 0});
  v.number("bias_l2_factor", o.bias_l2_factor, "factor of the option l2 for the bias", {.min = 0});
  v.number("weights_learning_rate_factor", o.weights_learning_rate_factor,
           "factor of the learning rate for the weights; 0: frozen", {.min = 0});
  v.number("bias_learning_rate_factor", o.bias_learning_rate_factor,
           "factor of the learning rate for the bias; 0: frozen", {.min = 0});
}

template <class Options>
class Convolution final : public LayerWith<Options> {
 public:
  using LayerWith<Options>::LayerWith;

  std::vector<ParameterSpec> parameters(std::span<const Shape> in) const override {
    const auto& o = this->options();
    const kernels::Sizes kernel = sizes_of(o.kernel);
    const std::string op = "convolution" + std::to_string(kernel.axes()) + "d";
    ops::check_space(op, in[0], kernel.axes());
    if (in[0][1] % o.groups != 0 || o.filters % o.groups != 0) {
      throw InvalidArgument("[" + op + "] " + std::to_string(o.groups) + " groups do not divide " +
                            std::to_string(in[0][1]) + " channels and " +
                            std::to_string(o.filters) + " filters");
    }
    std::vector<int64_t> weights{o.filters, in[0][1] / o.groups};
    int64_t window = 1;
    for (int64_t size : kernel) {
      weights.push_back(size);
      window *= size;
    }
    const int64_t fan_in = in[0][1] / o.groups * window, fan_out = o.filters / o.groups * window;
    std::vector<ParameterSpec> all{{"weights", Shape(std::move(weights)), o.weights_initializer,
                                    fan_in, fan_out, o.weights_l2_factor,
                                    o.weights_learning_rate_factor}};
    if (o.bias) {
      all.push_back({"bias", Shape{o.filters}, o.bias_initializer, fan_in, fan_out,
                     o.bias_l2_factor, o.bias_learning_rate_factor});
    }
    return all;
  }

  int lower(LoweringLayer& context, std::span<const int> in) const override {
    const auto& o = this->options();
    std::vector<int> inputs{in[0], context.parameter(0)};
    if (o.bias) inputs.push_back(context.parameter(1));
    return context.add(ops::make_convolution(
                           {sizes_of(o.stride), o.padding, sizes_of(o.dilation), o.groups}, o.bias),
                       inputs)[0];
  }
};

template <class Options>
LayerPtr make_convolution(Options options) {
  return std::make_shared<Convolution<Options>>(std::move(options));
}

template <class Options>
LayerInfo convolution_info() {
  return layer_info<Convolution<Options>, Options>();
}

}  // namespace

void Convolution1dOptions::visit(FieldVisitor& v) { visit_fields(v, *this, "length of a filter"); }
void Convolution2dOptions::visit(FieldVisitor& v) {
  visit_fields(v, *this, "height and width of a filter");
}
void Convolution3dOptions::visit(FieldVisitor& v) {
  visit_fields(v, *this, "depth, height and width of a filter");
}

LayerPtr convolution1d(Convolution1dOptions options) {
  return make_convolution(std::move(options));
}
LayerPtr convolution2d(Convolution2dOptions options) {
  return make_convolution(std::move(options));
}
LayerPtr convolution3d(Convolution3dOptions options) {
  return make_convolution(std::move(options));
}

LayerInfo layers::convolution1d_info() { return convolution_info<Convolution1dOptions>(); }
LayerInfo layers::convolution2d_info() { return convolution_info<Convolution2dOptions>(); }
LayerInfo layers::convolution3d_info() { return convolution_info<Convolution3dOptions>(); }

}  // namespace lockstep
