#include "lockstep/base/error.h"
#include "lockstep/engine/nn/layers.h"
#include "lockstep/engine/nn/layers/registry.h"
#include "lockstep/engine/ops/op_makers.h"

namespace lockstep {

void BatchNormalizationOptions::visit(FieldVisitor& v) {
  v.number("epsilon", epsilon, "added to the variance", {.min = 0, .min_excluded = true});
  v.number("momentum", momentum, "weight of the newest mini-batch in the moving statistics",
           {.min = 0, .max = 1});
  v.number("l2_factor", l2_factor, "factor of the option l2 for scale and shift", {.min = 0});
  v.number("learning_rate_factor", learning_rate_factor,
           "factor of the learning rate for scale and shift; 0: frozen", {.min = 0});
  v.text("statistics", statistics,
         "by which training normalizes: those of the mini-batch, or the moving ones, which then "
         "keep their values; `freeze` alone does not keep them",
         {"batch", "moving"});
}

namespace {

class BatchNormalization final : public LayerWith<BatchNormalizationOptions> {
 public:
  using LayerWith::LayerWith;

  std::vector<ParameterSpec> parameters(std::span<const Shape> in) const override {
    const auto& o = options();
    const Shape c = channels(in);
    return {{"scale", c, "ones", 1, 1, o.l2_factor, o.learning_rate_factor},
            {"shift", c, "zeros", 1, 1, o.l2_factor, o.learning_rate_factor}};
  }
  std::vector<StateSpec> states(std::span<const Shape> in) const override {
    const Shape c = channels(in);
    return {{"mean", c, 0}, {"variance", c, 1}};
  }
  int lower(LoweringLayer& context, std::span<const int> in) const override {
    const auto& o = options();
    if (!context.training() || o.statistics == "moving") {
      return context.add(ops::make_batch_normalization(o.epsilon, false),
                         {in[0], context.parameter(0), context.parameter(1), context.state(0),
                          context.state(1)})[0];
    }
    const auto out = context.add(ops::make_batch_normalization(o.epsilon, true),
                                 {in[0], context.parameter(0), context.parameter(1)});
    context.follow(0, 1, out[1], out[2], o.momentum);
    return out[0];
  }

 private:
  static Shape channels(std::span<const Shape> in) {
    if (in[0].rank() < 2) {
      throw InvalidArgument("[batch_normalization] expected an input with channels, received " +
                            in[0].to_string());
    }
    return Shape{in[0][1]};
  }
};

}  // namespace

LayerPtr batch_normalization(BatchNormalizationOptions options) {
  return std::make_shared<BatchNormalization>(options);
}

LayerInfo layers::batch_normalization_info() {
  return layer_info<BatchNormalization, BatchNormalizationOptions>();
}

}  // namespace lockstep
