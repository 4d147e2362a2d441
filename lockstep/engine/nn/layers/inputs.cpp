// Input layers: images of bytes, and arrays of floats: vectors of features, sequences, volumes. And
// the inverse of their normalization, for targets.
#include "lockstep/base/error.h"
#include "lockstep/engine/nn/custom_layer.h"
#include "lockstep/engine/nn/inputs/input_statistics.h"
#include "lockstep/engine/nn/layers.h"
#include "lockstep/engine/nn/layers/registry.h"
#include "lockstep/engine/ops/views.h"

namespace lockstep {
namespace {

void visit_normalization(FieldVisitor& v, std::string& normalization, const char* help) {
  v.text("normalization", normalization, help,
         {"none", "zero-center", "z-score", "rescale-zero-one", "rescale-symmetric", "kept"});
}

Shape shape_of(const ImageInputOptions& o) { return {o.channels, o.height, o.width}; }
Shape shape_of(const FeatureInputOptions& o) { return {o.features}; }
Shape shape_of(const SequenceInputOptions& o) {
  return o.length > 0 ? Shape{o.channels, o.length} : Shape{o.channels};
}
Shape shape_of(const Image3dInputOptions& o) { return {o.channels, o.depth, o.height, o.width}; }

// Normalizes the data.
template <class Options>
struct Input : Options {
  // Adds the op also for normalization "none", because it converts bytes to f32.
  Value build(LayerBuilder& layer, Value data) const {
    const Shape each{shape_of(*this)[0]};
    const Value offset = layer.state("offset", each, initial_offset(this->normalization));
    const Value factor = layer.state("factor", each, 1);
    return ops::normalize_images(data, offset, factor);
  }
};

template <class Options>
class InputLayer final : public LayerOf<Input<Options>> {
 public:
  using LayerOf<Input<Options>>::LayerOf;
  int least_inputs() const override { return 0; }
  int most_inputs() const override { return 0; }
  bool is_input() const override { return true; }
  Shape input_shape() const override { return shape_of(this->layer()); }
  bool is_sequence_input() const override {
    if constexpr (std::same_as<Options, SequenceInputOptions>) return this->layer().length == 0;
    return false;
  }
};

template <class Options>
LayerPtr make_input(Options options) {
  return std::make_shared<InputLayer<Options>>(Input<Options>{std::move(options)});
}

template <class Options>
LayerInfo input_info() {
  return layer_info<Input<Options>, InputLayer<Options>>();
}

constexpr IntegerRule extent{.min = 1, .max = 1 << 24, .required = true};

}  // namespace

void ImageInputOptions::visit(FieldVisitor& v) {
  v.integer("height", height, "height in pixels", {.min = 1, .max = 1 << 14, .required = true});
  v.integer("width", width, "width in pixels", {.min = 1, .max = 1 << 14, .required = true});
  v.integer("channels", channels, "values per pixel: 1 grayscale, 3 RGB",
            {.min = 1, .max = 1 << 14, .required = true});
  visit_normalization(v, normalization,
                      "of each channel (pixels are 0 to 255), with statistics of the training "
                      "data; kept: by those it has");
}

void FeatureInputOptions::visit(FieldVisitor& v) {
  v.integer("features", features, "number of features",
            {.min = 1, .max = int64_t{1} << 31, .required = true});
  visit_normalization(
      v, normalization,
      "of each feature, with statistics of the training data; kept: by those it has");
}

void SequenceInputOptions::visit(FieldVisitor& v) {
  v.integer("channels", channels, "values per time step", extent);
  v.integer("length", length,
            "time steps per sequence, whose data is channels x length; 0: sequences of different "
            "lengths, whose data is steps x channels",
            {.max = 1 << 24});
  visit_normalization(
      v, normalization,
      "of each channel, with statistics of the training data; kept: by those it has");
}

void Image3dInputOptions::visit(FieldVisitor& v) {
  v.integer("depth", depth, "depth in voxels", extent);
  v.integer("height", height, "height in voxels", extent);
  v.integer("width", width, "width in voxels", extent);
  v.integer("channels", channels, "values per voxel", extent);
  visit_normalization(
      v, normalization,
      "of each channel, with statistics of the training data; kept: by those it has");
}

void TokenInputOptions::visit(FieldVisitor& v) {
  v.integer("vocabulary", vocabulary, "number of different tokens, which are 0 to vocabulary - 1",
            {.min = 1, .max = int64_t{1} << 31, .required = true});
}

namespace {

struct TokenInput : TokenInputOptions {
  static constexpr bool kTakesSequences = true;
  Value build(LayerBuilder&, Value tokens) const { return tokens; }
};

class TokenInputLayer final : public LayerOf<TokenInput> {
 public:
  using LayerOf<TokenInput>::LayerOf;
  int least_inputs() const override { return 0; }
  int most_inputs() const override { return 0; }
  bool is_input() const override { return true; }
  bool is_sequence_input() const override { return true; }
  bool is_token_input() const override { return true; }
};

struct Denormalization : DenormalizationOptions {
  Value build(LayerBuilder& layer, Value x) const {
    if (x.shape().rank() < 2 || x.dtype() != DType::f32) {
      throw InvalidArgument("[denormalization] expected numbers, received " +
                            x.shape().to_string());
    }
    const Shape each{x.shape()[1]};
    const Value offset = layer.state("offset", each, initial_offset(normalization));
    const Value scale = layer.state("scale", each, 1);
    return x * ops::by_channel(scale, x.shape()) + ops::by_channel(offset, x.shape());
  }
};

}  // namespace

void DenormalizationOptions::visit(FieldVisitor& v) {
  visit_normalization(v, normalization,
                      "of each channel of the targets, with statistics of the training data; kept: "
                      "by those it has");
}

LayerPtr denormalization(DenormalizationOptions options) {
  return custom_layer(Denormalization{std::move(options)});
}

LayerPtr image_input(ImageInputOptions options) { return make_input(std::move(options)); }
LayerPtr feature_input(FeatureInputOptions options) { return make_input(std::move(options)); }
LayerPtr sequence_input(SequenceInputOptions options) { return make_input(std::move(options)); }
LayerPtr image3d_input(Image3dInputOptions options) { return make_input(std::move(options)); }
LayerPtr token_input(TokenInputOptions options) {
  return std::make_shared<TokenInputLayer>(TokenInput{options});
}

LayerInfo layers::image_input_info() { return input_info<ImageInputOptions>(); }
LayerInfo layers::feature_input_info() { return input_info<FeatureInputOptions>(); }
LayerInfo layers::sequence_input_info() { return input_info<SequenceInputOptions>(); }
LayerInfo layers::image3d_input_info() { return input_info<Image3dInputOptions>(); }
LayerInfo layers::token_input_info() { return layer_info<TokenInput, TokenInputLayer>(); }
LayerInfo layers::denormalization_info() { return layer_info<Denormalization>(); }

}  // namespace lockstep
