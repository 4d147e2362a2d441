// Layers that move elements.
#include "lockstep/base/error.h"
#include "lockstep/engine/nn/custom_layer.h"
#include "lockstep/engine/nn/layers.h"
#include "lockstep/engine/nn/layers/registry.h"

namespace lockstep {

void ReshapeOptions::visit(FieldVisitor& v) {
  v.integers("size", size, "channels, then the spatial sizes: [channels, height, width]",
             {.min = 1, .max = int64_t{1} << 31, .required = true});
}

namespace {

struct Concatenation : ConcatenationOptions {
  static constexpr int kLeastInputs = 2;
  Value build(LayerBuilder&, const std::vector<Value>& x) const { return ops::concat(x); }
};

struct LastStep : LastStepOptions {
  static constexpr bool kTakesSequences = true;
  Value build(LayerBuilder& layer, Value x) const {
    const Value lengths = layer.lengths(x);
    if (!lengths.defined()) {
      throw InvalidArgument("[last_step] expected a sequence, received " + x.shape().to_string(),
                            "sequence_input without a length makes sequences");
    }
    const Value last = ops::last_step(x, lengths);
    if (!layer.in_segments()) return last;
    // A segment without steps leaves the last one as it was.
    const Value before = layer.row_state("last", last.shape().without_batch());
    Value some = ops::greater(ops::astype(lengths, DType::f32), 0);
    while (some.shape().rank() < last.shape().rank()) some = ops::expand_dims(some, 1);
    const Value now = ops::where(some, last, before);
    layer.carry(before, now);
    return now;
  }
};

struct Flatten : FlattenOptions {
  Value build(LayerBuilder&, Value x) const { return ops::flatten(x); }
};

struct PixelsToSteps : PixelsToStepsOptions {
  Value build(LayerBuilder& layer, Value x) const {
    if (x.shape().rank() != 4) {
      throw InvalidArgument(
          "[pixels_to_steps] expected an image of channels x height x width, "
          "received " +
          x.shape().without_batch().to_string());
    }
    const int64_t n = x.shape()[0], channels = x.shape()[1];
    const int64_t steps = x.shape()[2] * x.shape()[3];
    const Value y = ops::permute_dims(ops::reshape(x, Shape{channels, steps}), {0, 2, 1});
    layer.set_lengths(
        ops::astype(ops::full_like(x, Shape{n}, static_cast<double>(steps)), DType::i32));
    return y;
  }
};

struct Reshape : ReshapeOptions {
  Value build(LayerBuilder&, Value x) const {
    const Shape observation(size);
    if (observation.rank() < 1 || observation.rank() > 4) {
      throw InvalidArgument(
          "[reshape] size must be channels and up to three extents of space, received " +
          observation.to_string());
    }
    return ops::reshape(x, observation);
  }
};

}  // namespace

LayerPtr concatenation() { return custom_layer(Concatenation{}); }
LayerPtr last_step() { return custom_layer(LastStep{}); }
LayerPtr flatten() { return custom_layer(Flatten{}); }
LayerPtr pixels_to_steps() { return custom_layer(PixelsToSteps{}); }
LayerPtr reshape(ReshapeOptions options) { return custom_layer(Reshape{std::move(options)}); }

LayerInfo layers::concatenation_info() { return layer_info<Concatenation>(); }
LayerInfo layers::last_step_info() { return layer_info<LastStep>(); }
LayerInfo layers::flatten_info() { return layer_info<Flatten>(); }
LayerInfo layers::pixels_to_steps_info() { return layer_info<PixelsToSteps>(); }
LayerInfo layers::reshape_info() { return layer_info<Reshape>(); }

}  // namespace lockstep
