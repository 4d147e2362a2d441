// Layers that slide a window along one, two or three axes: convolutions and pooling.
#include "lockstep/base/counted.h"
#include "lockstep/base/error.h"
#include "lockstep/engine/nn/custom_layer.h"
#include "lockstep/engine/nn/layers.h"
#include "lockstep/engine/nn/layers/registry.h"
#include "lockstep/engine/nn/layers/weights.h"
#include "lockstep/engine/ops/networks/steps.h"
#include "lockstep/engine/ops/networks/window.h"

namespace lockstep {
namespace {

kernels::Sizes sizes_of(int64_t size) { return {size}; }
template <size_t axes>
kernels::Sizes sizes_of(const std::array<int64_t, axes>& sizes) {
  return sizes;
}

void visit_sizes(FieldVisitor& v, const char* name, int64_t& size, const char* help) {
  v.integer(name, size, help, {.min = 1, .max = 1 << 14});
}
template <size_t axes>
void visit_sizes(FieldVisitor& v, const char* name, std::array<int64_t, axes>& sizes,
                 const char* help) {
  v.size(name, sizes, help, {.min = 1, .max = 1 << 14});
}

template <class Options>
void visit_convolution(FieldVisitor& v, Options& o, const char* kernel_help) {
  v.integer("filters", o.filters, "number of filters",
            {.min = 1, .max = 1 << 20, .required = true});
  visit_sizes(v, "kernel", o.kernel, kernel_help);
  visit_sizes(v, "stride", o.stride, "step of the filter");
  if constexpr (std::is_same_v<Options, TransposedConvolution2dOptions>) {
    v.padding("padding", o.padding,
              "cropped from the result, or \"same\": input size times stride");
  } else {
    v.padding("padding", o.padding, "zeros around the input, or \"same\"");
  }
  visit_sizes(v, "dilation", o.dilation, "spacing of the filter's elements; 1: adjacent");
  v.integer("groups", o.groups, "number of groups (grouped convolution)",
            {.min = 1, .max = 1 << 20});
  visit_weights(v, o, "a bias for each filter");
}

template <class Options>
void check_groups(const Options& o, int64_t channels) {
  if (channels % o.groups == 0 && o.filters % o.groups == 0) return;
  throw InvalidArgument("[" + std::string(Options::kType) + "] " + std::to_string(o.groups) +
                        " groups do not divide " + counted(channels, "channel") + " and " +
                        counted(o.filters, "filter"));
}

Value convolved(const Convolution1dOptions& o, Value x, const Weights& w) {
  if (o.causal && o.padding != Padding1d{}) {
    throw InvalidArgument("[convolution1d] causal = true and padding exclude each other",
                          "leave padding out: the zeros before the first step follow from the "
                          "kernel and its dilation");
  }
  const Padding1d padding =
      o.causal ? Padding1d{.before = {(o.kernel - 1) * o.dilation}} : o.padding;
  return ops::convolution1d(x, w.weights, w.bias, {o.stride, padding, o.dilation, o.groups});
}
Value convolved(const Convolution2dOptions& o, Value x, const Weights& w) {
  return ops::convolution2d(x, w.weights, w.bias, {o.stride, o.padding, o.dilation, o.groups});
}
Value convolved(const Convolution3dOptions& o, Value x, const Weights& w) {
  return ops::convolution3d(x, w.weights, w.bias, {o.stride, o.padding, o.dilation, o.groups});
}
Value convolved(const TransposedConvolution2dOptions& o, Value x, const Weights& w) {
  return ops::transposed_convolution2d(x, w.weights, w.bias,
                                       {o.stride, o.padding, o.dilation, o.groups});
}

template <class Options>
constexpr bool kOverSteps = std::is_same_v<Options, Convolution1dOptions>;

// x with the `back` steps before it in earlier segments, zeros before the first step.
Value after_earlier(LayerBuilder& layer, const Value& x, const Value& lengths, int64_t back) {
  const Value before = layer.row_state("earlier", Shape{back, x.shape()[2]});
  const Value all = ops::concat({before, x}, 1);
  const Value length = ops::expand_dims(ops::astype(lengths, DType::f32), 1);
  const Value last = length + ops::arange(length, 0, static_cast<double>(back));
  layer.carry(before, ops::chosen_steps(all, last));
  return all;
}

// A convolution along the steps of a sequence (n x steps x channels), with as many steps in its
// result. Steps after the end count as zeros.
Value convolved_steps(LayerBuilder& layer, const Convolution1dOptions& o, const Value& x,
                      const Value& lengths) {
  if (x.shape().rank() != 3 || o.stride != 1 || !(o.causal || o.padding.same)) {
    throw InvalidArgument(
        "[convolution1d] sequences of different lengths need steps of channels, a stride of 1, and "
        "padding \"same\" or causal = true");
  }
  const int64_t back = (o.kernel - 1) * o.dilation;
  const bool in_segments = layer.in_segments() && back > 0;
  if (in_segments && !o.causal) {
    throw InvalidArgument(
        "[convolution1d] padding \"same\" needs later steps than those of a segment",
        "causal = true has a result in each segment; predict() takes whole sequences");
  }
  const int64_t channels = x.shape()[2];
  const int64_t fan_in = channels / o.groups * o.kernel, fan_out = o.filters / o.groups * o.kernel;
  const Weights w = declare_weights(layer, o, Shape{o.filters, channels / o.groups, o.kernel},
                                    o.filters, fan_in, fan_out);
  const Value valid = ops::expand_dims(ops::step_mask(lengths, x.shape()[1]), 2);
  Value from = ops::where(valid, x, 0);
  Convolution1dOptions own = o;
  if (in_segments) {
    from = after_earlier(layer, from, lengths, back);
    own.causal = false;
    own.padding = {};
  }
  return ops::permute_dims(convolved(own, ops::permute_dims(from, {0, 2, 1}), w), {0, 2, 1});
}

template <class Options>
struct Convolution : Options {
  static constexpr bool kTakesSequences = kOverSteps<Options>;
  Value build(LayerBuilder& layer, Value x) const {
    const Options& o = *this;
    if constexpr (kOverSteps<Options>) {
      if (const Value lengths = layer.lengths(x); lengths.defined()) {
        check_groups(o, x.shape()[2]);
        return convolved_steps(layer, o, x, lengths);
      }
    }
    const kernels::Sizes sizes = sizes_of(o.kernel);
    ops::check_space(Options::kType, x.shape(), sizes.axes());
    const int64_t channels = x.shape()[1];
    check_groups(o, channels);
    constexpr bool transposed = std::is_same_v<Options, TransposedConvolution2dOptions>;
    std::vector<int64_t> weights{o.filters, channels / o.groups};
    if (transposed) weights = {channels, o.filters / o.groups};
    int64_t window = 1;
    for (const int64_t size : sizes) {
      weights.push_back(size);
      window *= size;
    }
    const int64_t fan_in = channels / o.groups * window, fan_out = o.filters / o.groups * window;
    return convolved(
        o, x, declare_weights(layer, o, Shape(std::move(weights)), o.filters, fan_in, fan_out));
  }
};

template <class Options>
LayerPtr make_convolution(Options options) {
  return custom_layer(Convolution<Options>{std::move(options)});
}

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

Value pooled(const MaxPooling1dOptions& o, Value x) {
  return ops::max_pooling1d(x, {o.pool, o.stride, o.padding});
}
Value pooled(const AveragePooling1dOptions& o, Value x) {
  return ops::average_pooling1d(x, {o.pool, o.stride, o.padding, o.count_padding});
}
Value pooled(const GlobalAveragePooling1dOptions&, Value x) {
  return ops::global_average_pooling1d(x);
}
Value pooled(const MaxPooling2dOptions& o, Value x) {
  return ops::max_pooling2d(x, {o.pool, o.stride, o.padding});
}
Value pooled(const AveragePooling2dOptions& o, Value x) {
  return ops::average_pooling2d(x, {o.pool, o.stride, o.padding, o.count_padding});
}
Value pooled(const GlobalAveragePooling2dOptions&, Value x) {
  return ops::global_average_pooling2d(x);
}
Value pooled(const MaxPooling3dOptions& o, Value x) {
  return ops::max_pooling3d(x, {o.pool, o.stride, o.padding});
}
Value pooled(const AveragePooling3dOptions& o, Value x) {
  return ops::average_pooling3d(x, {o.pool, o.stride, o.padding, o.count_padding});
}
Value pooled(const GlobalAveragePooling3dOptions&, Value x) {
  return ops::global_average_pooling3d(x);
}

// A window along steps has as many results for a sequence as its length says. A vector is an
// observation, or a step of a sequence without a fixed length.
template <class Options>
void check_fixed_length(const Value& x) {
  if constexpr (requires(Options o) { int64_t{o.pool}; }) {
    if (x.shape().rank() != 2) return;
    throw InvalidArgument(
        std::string("[") + Options::kType +
            "] takes sequences of one fixed length only (channels x length), received vectors of " +
            std::to_string(x.shape()[1]) + ", or a sequence without a length, step by step",
        "give sequence_input its `length`; sequences of different lengths are pooled by "
        "global_average_pooling1d, last_step or lstm(output = \"last\"), and combined step by "
        "step by convolution1d with padding = \"same\" or causal = true");
  }
}

template <class Options>
struct Pooling : Options {
  static constexpr bool kTakesSequences = std::is_same_v<Options, GlobalAveragePooling1dOptions>;
  Value build(LayerBuilder& layer, Value x) const {
    if (const Value lengths = layer.lengths(x); lengths.defined()) {
      if (layer.in_segments()) {
        throw InvalidArgument(
            std::string("[") + Options::kType + "] needs later steps than those of a segment",
            "last_step has a result in each segment");
      }
      return ops::mean_over_steps(x, lengths);
    }
    check_fixed_length<Options>(x);
    return pooled(*this, x);
  }
};

template <class Options>
LayerPtr make_pooling(Options options) {
  return custom_layer(Pooling<Options>{std::move(options)});
}

constexpr const char* along_one = "length of a window";
constexpr const char* along_two = "height and width of a window";
constexpr const char* along_three = "depth, height and width of a window";

}  // namespace

void Convolution1dOptions::visit(FieldVisitor& v) {
  visit_convolution(v, *this, "length of a filter");
  v.flag("causal", causal,
         "zeros only before the first step, so that no result depends on later steps; without "
         "`padding`");
}
void Convolution2dOptions::visit(FieldVisitor& v) {
  visit_convolution(v, *this, "height and width of a filter");
}
void Convolution3dOptions::visit(FieldVisitor& v) {
  visit_convolution(v, *this, "depth, height and width of a filter");
}
void TransposedConvolution2dOptions::visit(FieldVisitor& v) {
  visit_convolution(v, *this, "height and width of a filter");
}
void MaxPooling1dOptions::visit(FieldVisitor& v) { visit_pooling(v, *this, along_one); }
void MaxPooling2dOptions::visit(FieldVisitor& v) { visit_pooling(v, *this, along_two); }
void MaxPooling3dOptions::visit(FieldVisitor& v) { visit_pooling(v, *this, along_three); }
void AveragePooling1dOptions::visit(FieldVisitor& v) { visit_pooling(v, *this, along_one); }
void AveragePooling2dOptions::visit(FieldVisitor& v) { visit_pooling(v, *this, along_two); }
void AveragePooling3dOptions::visit(FieldVisitor& v) { visit_pooling(v, *this, along_three); }

LayerPtr convolution1d(Convolution1dOptions options) {
  return make_convolution(std::move(options));
}
LayerPtr convolution2d(Convolution2dOptions options) {
  return make_convolution(std::move(options));
}
LayerPtr convolution3d(Convolution3dOptions options) {
  return make_convolution(std::move(options));
}
LayerPtr transposed_convolution2d(TransposedConvolution2dOptions options) {
  return make_convolution(std::move(options));
}
LayerPtr max_pooling1d(MaxPooling1dOptions options) { return make_pooling(options); }
LayerPtr max_pooling2d(MaxPooling2dOptions options) { return make_pooling(options); }
LayerPtr max_pooling3d(MaxPooling3dOptions options) { return make_pooling(options); }
LayerPtr average_pooling1d(AveragePooling1dOptions options) { return make_pooling(options); }
LayerPtr average_pooling2d(AveragePooling2dOptions options) { return make_pooling(options); }
LayerPtr average_pooling3d(AveragePooling3dOptions options) { return make_pooling(options); }
LayerPtr global_average_pooling1d() { return make_pooling(GlobalAveragePooling1dOptions{}); }
LayerPtr global_average_pooling2d() { return make_pooling(GlobalAveragePooling2dOptions{}); }
LayerPtr global_average_pooling3d() { return make_pooling(GlobalAveragePooling3dOptions{}); }

LayerInfo layers::convolution1d_info() { return layer_info<Convolution<Convolution1dOptions>>(); }
LayerInfo layers::convolution2d_info() { return layer_info<Convolution<Convolution2dOptions>>(); }
LayerInfo layers::convolution3d_info() { return layer_info<Convolution<Convolution3dOptions>>(); }
LayerInfo layers::transposed_convolution2d_info() {
  return layer_info<Convolution<TransposedConvolution2dOptions>>();
}
LayerInfo layers::max_pooling1d_info() { return layer_info<Pooling<MaxPooling1dOptions>>(); }
LayerInfo layers::max_pooling2d_info() { return layer_info<Pooling<MaxPooling2dOptions>>(); }
LayerInfo layers::max_pooling3d_info() { return layer_info<Pooling<MaxPooling3dOptions>>(); }
LayerInfo layers::average_pooling1d_info() {
  return layer_info<Pooling<AveragePooling1dOptions>>();
}
LayerInfo layers::average_pooling2d_info() {
  return layer_info<Pooling<AveragePooling2dOptions>>();
}
LayerInfo layers::average_pooling3d_info() {
  return layer_info<Pooling<AveragePooling3dOptions>>();
}
LayerInfo layers::global_average_pooling1d_info() {
  return layer_info<Pooling<GlobalAveragePooling1dOptions>>();
}
LayerInfo layers::global_average_pooling2d_info() {
  return layer_info<Pooling<GlobalAveragePooling2dOptions>>();
}
LayerInfo layers::global_average_pooling3d_info() {
  return layer_info<Pooling<GlobalAveragePooling3dOptions>>();
}

}  // namespace lockstep
