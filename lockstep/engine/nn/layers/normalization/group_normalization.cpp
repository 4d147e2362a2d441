// Layer, instance and group normalization, which use one op with different numbers of groups.
#include "lockstep/base/error.h"
#include "lockstep/engine/nn/layers.h"
#include "lockstep/engine/nn/layers/registry.h"
#include "lockstep/engine/ops/op_makers.h"

namespace lockstep {
namespace {

template <class Options>
void visit_common(FieldVisitor& v, Options& o) {
  v.number("epsilon", o.epsilon, "added to the variance", {.min = 0, .min_excluded = true});
  v.number("l2_factor", o.l2_factor, "factor of the option l2 for scale and shift", {.min = 0});
  v.number("learning_rate_factor", o.learning_rate_factor,
           "factor of the learning rate for scale and shift; 0: frozen", {.min = 0});
}

int64_t groups_of(const LayerNormalizationOptions&) { return 1; }
int64_t groups_of(const InstanceNormalizationOptions&) { return ops::group_per_channel; }
int64_t groups_of(const GroupNormalizationOptions& o) { return o.groups; }

template <class Options>
class Normalization final : public LayerWith<Options> {
 public:
  using LayerWith<Options>::LayerWith;

  std::vector<ParameterSpec> parameters(std::span<const Shape> in) const override {
    const auto& o = this->options();
    if (in[0].rank() < 2) {
      throw InvalidArgument("[" + std::string(Options::kType) +
                            "] expected an input with channels, received " + in[0].to_string());
    }
    const Shape c{in[0][1]};
    return {{"scale", c, "ones", 1, 1, o.l2_factor, o.learning_rate_factor},
            {"shift", c, "zeros", 1, 1, o.l2_factor, o.learning_rate_factor}};
  }
  int lower(LoweringLayer& context, std::span<const int> in) const override {
    const auto& o = this->options();
    return context.add(ops::make_group_normalization(groups_of(o), o.epsilon),
                       {in[0], context.parameter(0), context.parameter(1)})[0];
  }
};

template <class Options>
LayerInfo normalization_info() {
  return layer_info<Normalization<Options>, Options>();
}

}  // namespace

void LayerNormalizationOptions::visit(FieldVisitor& v) { visit_common(v, *this); }

void InstanceNormalizationOptions::visit(FieldVisitor& v) { visit_common(v, *this); }

void GroupNormalizationOptions::visit(FieldVisitor& v) {
  v.integer("groups", groups,
            "number of groups of adjacent channels; must divide the number of channels",
            {.min = 1, .required = true});
  visit_common(v, *this);
}

LayerPtr layer_normalization(LayerNormalizationOptions options) {
  return std::make_shared<Normalization<LayerNormalizationOptions>>(options);
}
LayerPtr instance_normalization(InstanceNormalizationOptions options) {
  return std::make_shared<Normalization<InstanceNormalizationOptions>>(options);
}
LayerPtr group_normalization(GroupNormalizationOptions options) {
  return std::make_shared<Normalization<GroupNormalizationOptions>>(options);
}

LayerInfo layers::layer_normalization_info() {
  return normalization_info<LayerNormalizationOptions>();
}
LayerInfo layers::instance_normalization_info() {
  return normalization_info<InstanceNormalizationOptions>();
}
LayerInfo layers::group_normalization_info() {
  return normalization_info<GroupNormalizationOptions>();
}

}  // namespace lockstep
