// Pooling along one, two and three axes.
#include "lockstep/engine/ops/windows/pooling.h"

#include "lockstep/engine/nn/layers.h"
#include "lockstep/engine/nn/layers/registry.h"
#include "lockstep/engine/nn/layers/windows/window_fields.h"

namespace lockstep {
namespace {

template <class Options>
concept Averages = requires(Options o) {
  o.count_padding;
};

template <class Options>
void visit_pooling(FieldVisitor& v, Options& o, const char* pool_help) {
  visit_sizes(v, "pool", o.pool, pool_help);
  visit_sizes(v, "stride", o.stride, "step of the window");
  if constexpr (Averages<Options>) {
    v.padding("padding", o.padding, "zeros around the input, or \"same\"");
    v.flag("count_padding", o.count_padding, "padding counts in the divisor of the average");
  } else {
    v.padding("padding", o.padding,
              "elements around the input, which are never the maximum, or \"same\"");
  }
}

template <class Options>
OpPtr pooling_op(const Options& o) {
  if constexpr (Averages<Options>) {
    return ops::make_average_pooling(
        {sizes_of(o.pool), sizes_of(o.stride), o.padding, o.count_padding});
  } else {
    return ops::make_max_pooling({sizes_of(o.pool), sizes_of(o.stride), o.padding, true});
  }
}
OpPtr pooling_op(const GlobalAveragePooling1dOptions&) {
  return ops::make_global_average_pooling(1);
}
OpPtr pooling_op(const GlobalAveragePooling2dOptions&) {
  return ops::make_global_average_pooling(2);
}
OpPtr pooling_op(const GlobalAveragePooling3dOptions&) {
  return ops::make_global_average_pooling(3);
}

template <class Options>
class Pooling final : public LayerWith<Options> {
 public:
  using LayerWith<Options>::LayerWith;
  int lower(LoweringLayer& context, std::span<const int> in) const override {
    return context.add(pooling_op(this->options()), {in[0]})[0];
  }
};

template <class Options>
LayerPtr make_pooling(Options options) {
  return std::make_shared<Pooling<Options>>(std::move(options));
}

template <class Options>
LayerInfo pooling_info() {
  return layer_info<Pooling<Options>, Options>();
}

constexpr const char* along_one = "length of a window";
constexpr const char* along_two = "height and width of a window";
constexpr const char* along_three = "depth, height and width of a window";

}  // namespace

void MaxPooling1dOptions::visit(FieldVisitor& v) { visit_pooling(v, *this, along_one); }
void MaxPooling2dOptions::visit(FieldVisitor& v) { visit_pooling(v, *this, along_two); }
void MaxPooling3dOptions::visit(FieldVisitor& v) { visit_pooling(v, *this, along_three); }
void AveragePooling1dOptions::visit(FieldVisitor& v) { visit_pooling(v, *this, along_one); }
void AveragePooling2dOptions::visit(FieldVisitor& v) { visit_pooling(v, *this, along_two); }
void AveragePooling3dOptions::visit(FieldVisitor& v) { visit_pooling(v, *this, along_three); }

LayerPtr max_pooling1d(MaxPooling1dOptions options) { return make_pooling(options); }
LayerPtr max_pooling2d(MaxPooling2dOptions options) { return make_pooling(options); }
LayerPtr max_pooling3d(MaxPooling3dOptions options) { return make_pooling(options); }
LayerPtr average_pooling1d(AveragePooling1dOptions options) { return make_pooling(options); }
LayerPtr average_pooling2d(AveragePooling2dOptions options) { return make_pooling(options); }
LayerPtr average_pooling3d(AveragePooling3dOptions options) { return make_pooling(options); }
LayerPtr global_average_pooling1d() { return make_pooling(GlobalAveragePooling1dOptions{}); }
LayerPtr global_average_pooling2d() { return make_pooling(GlobalAveragePooling2dOptions{}); }
LayerPtr global_average_pooling3d() { return make_pooling(GlobalAveragePooling3dOptions{}); }

LayerInfo layers::max_pooling1d_info() { return pooling_info<MaxPooling1dOptions>(); }
LayerInfo layers::max_pooling2d_info() { return pooling_info<MaxPooling2dOptions>(); }
LayerInfo layers::max_pooling3d_info() { return pooling_info<MaxPooling3dOptions>(); }
LayerInfo layers::average_pooling1d_info() { return pooling_info<AveragePooling1dOptions>(); }
LayerInfo layers::average_pooling2d_info() { return pooling_info<AveragePooling2dOptions>(); }
LayerInfo layers::average_pooling3d_info() { return pooling_info<AveragePooling3dOptions>(); }
LayerInfo layers::global_average_pooling1d_info() {
  return pooling_info<GlobalAveragePooling1dOptions>();
}
LayerInfo layers::global_average_pooling2d_info() {
  return pooling_info<GlobalAveragePooling2dOptions>();
}
LayerInfo layers::global_average_pooling3d_info() {
  return pooling_info<GlobalAveragePooling3dOptions>();
}

}  // namespace lockstep
