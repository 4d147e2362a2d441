#include "lockstep/engine/nn/layers.h"
#include "lockstep/engine/nn/layers/registry.h"
#include "lockstep/engine/ops/normalize_images.h"

namespace lockstep {

void FeatureInputOptions::visit(FieldVisitor& v) {
  v.integer("features", features, "elements of one observation",
            {.min = 1, .max = int64_t{1} << 31, .required = true});
  v.text("normalization", normalization, "of each feature, over the training data",
         {"none", "zero-center", "z-score", "rescale-zero-one", "rescale-symmetric"});
}

namespace {

class FeatureInput final : public LayerWith<FeatureInputOptions> {
 public:
  using LayerWith::LayerWith;
  int least_inputs() const override { return 0; }
  int most_inputs() const override { return 0; }
  bool is_input() const override { return true; }
  Shape input_shape() const override { return Shape{options().features}; }
  std::vector<StateSpec> states(std::span<const Shape>) const override {
    return {{"offset", input_shape(), 0}, {"factor", input_shape(), 1}};
  }
  int lower(LoweringLayer& context, std::span<const int>) const override {
    return context.add(ops::make_normalize_images(),
                       {context.input(), context.state(0), context.state(1)})[0];
  }
};

}  // namespace

LayerPtr feature_input(FeatureInputOptions options) {
  return std::make_shared<FeatureInput>(std::move(options));
}

LayerInfo layers::feature_input_info() { return layer_info<FeatureInput, FeatureInputOptions>(); }

}  // namespace lockstep
