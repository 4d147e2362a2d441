// Input layers for arrays of floats: vectors of features, sequences, volumes.
#include "lockstep/engine/nn/input_statistics.h"
#include "lockstep/engine/nn/layers.h"
#include "lockstep/engine/nn/layers/registry.h"
#include "lockstep/engine/ops/op_makers.h"

namespace lockstep {
namespace {

void visit_normalization(FieldVisitor& v, std::string& normalization, const char* help) {
  v.text("normalization", normalization, help,
         {"none", "zero-center", "z-score", "rescale-zero-one", "rescale-symmetric"});
}

Shape shape_of(const FeatureInputOptions& o) { return {o.features}; }
Shape shape_of(const SequenceInputOptions& o) { return {o.channels, o.length}; }
Shape shape_of(const Image3dInputOptions& o) { return {o.channels, o.depth, o.height, o.width}; }

template <class Options>
class Input final : public LayerWith<Options> {
 public:
  using LayerWith<Options>::LayerWith;
  int least_inputs() const override { return 0; }
  int most_inputs() const override { return 0; }
  bool is_input() const override { return true; }
  Shape input_shape() const override { return shape_of(this->options()); }
  std::vector<StateSpec> states(std::span<const Shape>) const override {
    const Shape channels{input_shape()[0]};
    return {{"offset", channels, initial_offset(this->options().normalization)},
            {"factor", channels, 1}};
  }
  int lower(LoweringLayer& context, std::span<const int>) const override {
    return context.add(ops::make_normalize_images(),
                       {context.input(), context.state(0), context.state(1)})[0];
  }
};

constexpr IntegerRule extent{.min = 1, .max = 1 << 24, .required = true};

}  // namespace

void FeatureInputOptions::visit(FieldVisitor& v) {
  v.integer("features", features, "number of features",
            {.min = 1, .max = int64_t{1} << 31, .required = true});
  visit_normalization(v, normalization, "of each feature, with statistics of the training data");
}

void SequenceInputOptions::visit(FieldVisitor& v) {
  v.integer("channels", channels, "values per time step", extent);
  v.integer("length", length, "time steps per sequence", extent);
  visit_normalization(v, normalization, "of each channel, with statistics of the training data");
}

void Image3dInputOptions::visit(FieldVisitor& v) {
  v.integer("depth", depth, "depth in voxels", extent);
  v.integer("height", height, "height in voxels", extent);
  v.integer("width", width, "width in voxels", extent);
  v.integer("channels", channels, "values per voxel", extent);
  visit_normalization(v, normalization, "of each channel, with statistics of the training data");
}

LayerPtr feature_input(FeatureInputOptions options) {
  return std::make_shared<Input<FeatureInputOptions>>(std::move(options));
}
LayerPtr sequence_input(SequenceInputOptions options) {
  return std::make_shared<Input<SequenceInputOptions>>(std::move(options));
}
LayerPtr image3d_input(Image3dInputOptions options) {
  return std::make_shared<Input<Image3dInputOptions>>(std::move(options));
}

LayerInfo layers::feature_input_info() {
  return layer_info<Input<FeatureInputOptions>, FeatureInputOptions>();
}
LayerInfo layers::sequence_input_info() {
  return layer_info<Input<SequenceInputOptions>, SequenceInputOptions>();
}
LayerInfo layers::image3d_input_info() {
  return layer_info<Input<Image3dInputOptions>, Image3dInputOptions>();
}

}  // namespace lockstep
