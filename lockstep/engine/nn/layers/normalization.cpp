// Batch normalization; layer, instance and group normalization, which use one op with different
// numbers of groups; factors of channels.
#include "lockstep/base/error.h"
#include "lockstep/engine/nn/custom_layer.h"
#include "lockstep/engine/nn/inputs/sequences.h"
#include "lockstep/engine/nn/layers.h"
#include "lockstep/engine/nn/layers/initializer.h"
#include "lockstep/engine/nn/layers/registry.h"
#include "lockstep/engine/ops/networks/steps.h"
#include "lockstep/engine/ops/views.h"

namespace lockstep {
namespace {

template <class Options>
void visit_epsilon(FieldVisitor& v, Options& o) {
  v.number("epsilon", o.epsilon, "added to the variance", {.min = 0, .min_excluded = true});
}

template <class Options>
void visit_factors(FieldVisitor& v, Options& o) {
  v.number("l2_factor", o.l2_factor, "factor of the option l2 for scale and shift", {.min = 0});
  v.number("learning_rate_factor", o.learning_rate_factor,
           "factor of the learning rate for scale and shift; 0: frozen", {.min = 0});
}

template <class Options>
void visit_common(FieldVisitor& v, Options& o) {
  visit_epsilon(v, o);
  visit_factors(v, o);
}

struct ScaleAndShift {
  Value scale, shift;
};

// Declares a scale and a shift for each channel of observations x.
template <class Options>
ScaleAndShift scale_and_shift(LayerBuilder& layer, const Options& o, const Shape& x) {
  if (x.rank() < 2) {
    throw InvalidArgument("[" + std::string(Options::kType) +
                          "] expected an input with channels, received " + x.to_string());
  }
  const Shape c{x[1]};
  ScaleAndShift made;
  made.scale = layer.parameter({"scale", c, "ones", 1, 1, o.l2_factor, o.learning_rate_factor});
  made.shift = layer.parameter({"shift", c, "zeros", 1, 1, o.l2_factor, o.learning_rate_factor});
  return made;
}

struct BatchNormalization : BatchNormalizationOptions {
  static constexpr bool kTakesSequences = true;
  Value build(LayerBuilder& layer, Value x) const {
    layer.in_segments();  // all segments are normalized by the same statistics
    const Value lengths = layer.lengths(x);
    const bool steps = lengths.defined();
    const Shape rows = steps ? steps_together(x.shape()) : x.shape();
    const auto [scale, shift] = scale_and_shift(layer, *this, rows);
    const Value mean = layer.state("mean", scale.shape());
    const Value variance = layer.state("variance", scale.shape(), 1);
    if (!layer.training() || statistics == "moving") {
      const Value from = steps ? ops::reshaped(x, rows) : x;
      const Value y = ops::batch_normalization(from, scale, shift, mean, variance, epsilon);
      return steps ? ops::reshaped(y, x.shape()) : y;
    }
    if (!steps) {
      const auto normalized = ops::batch_normalization_training(x, scale, shift, epsilon);
      layer.follow_mean_and_variance(mean, variance, normalized.mean, normalized.variance,
                                     momentum);
      return normalized.y;
    }
    const ops::StepStatistics own = ops::statistics_of_steps(x, lengths);
    layer.follow_mean_and_variance(mean, variance, own.mean, own.variance, own.count, momentum);
    std::vector<int64_t> across(static_cast<size_t>(x.shape().rank()), 1);
    across[2] = rows[1];
    const Value factor = scale * ops::rsqrt(own.variance + epsilon);
    return own.from_mean * ops::reshaped(factor, Shape(across)) +
           ops::reshaped(shift, Shape(across));
  }
};

int64_t groups_of(const LayerNormalizationOptions&) { return 1; }
int64_t groups_of(const InstanceNormalizationOptions&) { return ops::group_per_channel; }
int64_t groups_of(const GroupNormalizationOptions& o) { return o.groups; }

template <class Options>
struct Normalization : Options {
  Value build(LayerBuilder& layer, Value x) const {
    const auto [scale, shift] = scale_and_shift(layer, *this, x.shape());
    return ops::group_normalization(x, scale, shift, groups_of(*this), this->epsilon);
  }
};

struct ChannelNormalization : ChannelNormalizationOptions {
  Value build(LayerBuilder& layer, Value x) const {
    const auto [scale, shift] = scale_and_shift(layer, *this, x.shape());
    const Shape shape = x.shape();
    if (shape.rank() == 2) return ops::group_normalization(x, scale, shift, 1, epsilon);
    // Channels last, so that each position is an observation of the op.
    std::vector<int> last{0}, back{0, shape.rank() - 1};
    std::vector<int64_t> dims{shape[0]};
    for (int axis = 2; axis < shape.rank(); ++axis) {
      last.push_back(axis);
      back.push_back(axis - 1);
      dims.push_back(shape[axis]);
    }
    last.push_back(1);
    dims.push_back(shape[1]);
    const Value rows =
        ops::reshaped(ops::permute_dims(x, last), Shape{shape.elements() / shape[1], shape[1]});
    const Value y = ops::group_normalization(rows, scale, shift, 1, epsilon);
    return ops::permute_dims(ops::reshaped(y, Shape(std::move(dims))), back);
  }
};

struct LayerScale : LayerScaleOptions {
  Value build(LayerBuilder& layer, Value x) const {
    const Shape& shape = x.shape();
    if (shape.rank() < 2) {
      throw InvalidArgument("[layer_scale] expected an input with channels, received " +
                            shape.to_string());
    }
    const Value scale = layer.parameter({"scale", Shape{shape[1]}, constant_initializer(initial), 1,
                                         1, l2_factor, learning_rate_factor});
    return x * ops::by_channel(scale, shape);
  }
};

}  // namespace

void BatchNormalizationOptions::visit(FieldVisitor& v) {
  visit_epsilon(v, *this);
  v.number("momentum", momentum, "weight of the newest mini-batch in the moving statistics",
           {.min = 0, .max = 1});
  visit_factors(v, *this);
  v.text("statistics", statistics,
         "by which training normalizes: those of the mini-batch, or the moving ones, which then "
         "keep their values; `freeze` alone does not keep them",
         {"batch", "moving"});
}

void LayerNormalizationOptions::visit(FieldVisitor& v) { visit_common(v, *this); }

void InstanceNormalizationOptions::visit(FieldVisitor& v) { visit_common(v, *this); }

void GroupNormalizationOptions::visit(FieldVisitor& v) {
  v.integer("groups", groups,
            "number of groups of adjacent channels; must divide the number of channels",
            {.min = 1, .required = true});
  visit_common(v, *this);
}

void ChannelNormalizationOptions::visit(FieldVisitor& v) { visit_common(v, *this); }

void LayerScaleOptions::visit(FieldVisitor& v) {
  v.number("initial", initial, "the factors at first", {.min = -1e30, .max = 1e30});
  v.number("l2_factor", l2_factor, "factor of the option l2 for the factors", {.min = 0});
  v.number("learning_rate_factor", learning_rate_factor,
           "factor of the learning rate for the factors; 0: frozen", {.min = 0});
}

LayerPtr batch_normalization(BatchNormalizationOptions options) {
  return custom_layer(BatchNormalization{std::move(options)});
}
LayerPtr layer_normalization(LayerNormalizationOptions options) {
  return custom_layer(Normalization<LayerNormalizationOptions>{options});
}
LayerPtr instance_normalization(InstanceNormalizationOptions options) {
  return custom_layer(Normalization<InstanceNormalizationOptions>{options});
}
LayerPtr group_normalization(GroupNormalizationOptions options) {
  return custom_layer(Normalization<GroupNormalizationOptions>{options});
}

LayerPtr channel_normalization(ChannelNormalizationOptions options) {
  return custom_layer(ChannelNormalization{options});
}
LayerPtr layer_scale(LayerScaleOptions options) { return custom_layer(LayerScale{options}); }

LayerInfo layers::batch_normalization_info() { return layer_info<BatchNormalization>(); }
LayerInfo layers::layer_normalization_info() {
  return layer_info<Normalization<LayerNormalizationOptions>>();
}
LayerInfo layers::instance_normalization_info() {
  return layer_info<Normalization<InstanceNormalizationOptions>>();
}
LayerInfo layers::group_normalization_info() {
  return layer_info<Normalization<GroupNormalizationOptions>>();
}
LayerInfo layers::channel_normalization_info() { return layer_info<ChannelNormalization>(); }
LayerInfo layers::layer_scale_info() { return layer_info<LayerScale>(); }

}  // namespace lockstep
