#include "lockstep/engine/nn/input_statistics.h"
#include "lockstep/engine/nn/layers.h"
#include "lockstep/engine/nn/layers/registry.h"
#include "lockstep/engine/ops/op_makers.h"

namespace lockstep {

void ImageInputOptions::visit(FieldVisitor& v) {
  v.integer("height", height, "height in pixels", {.min = 1, .max = 1 << 14, .required = true});
  v.integer("width", width, "width in pixels", {.min = 1, .max = 1 << 14, .required = true});
  v.integer("channels", channels, "values per pixel: 1 grayscale, 3 RGB",
            {.min = 1, .max = 1 << 14, .required = true});
  v.text("normalization", normalization,
         "of each channel (pixels are 0 to 255), with statistics of the training data",
         {"none", "zero-center", "z-score", "rescale-zero-one", "rescale-symmetric"});
}

namespace {

class ImageInput final : public LayerWith<ImageInputOptions> {
 public:
  using LayerWith::LayerWith;
  int least_inputs() const override { return 0; }
  int most_inputs() const override { return 0; }
  bool is_input() const override { return true; }
  Shape input_shape() const override {
    return Shape{options().channels, options().height, options().width};
  }
  std::vector<StateSpec> states(std::span<const Shape>) const override {
    const Shape channels{options().channels};
    return {{"offset", channels, initial_offset(options().normalization)}, {"factor", channels, 1}};
  }
  // Adds the op also for normalization "none", because it converts bytes to f32.
  int lower(LoweringLayer& context, std::span<const int>) const override {
    return context.add(ops::make_normalize_images(),
                       {context.input(), context.state(0), context.state(1)})[0];
  }
};

}  // namespace

LayerPtr image_input(ImageInputOptions options) { return std::make_shared<ImageInput>(options); }

LayerInfo layers::image_input_info() { return layer_info<ImageInput, ImageInputOptions>(); }

}  // namespace lockstep
