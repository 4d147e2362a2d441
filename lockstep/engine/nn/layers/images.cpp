// Layers of images: other sizes, and factors of channels from their averages.
#include "lockstep/base/counted.h"
#include "lockstep/base/error.h"
#include "lockstep/engine/nn/custom_layer.h"
#include "lockstep/engine/nn/layers.h"
#include "lockstep/engine/nn/layers/registry.h"

namespace lockstep {
namespace {

void check_image(const char* type, const Value& x) {
  if (x.shape().rank() == 4) return;
  throw InvalidArgument("[" + std::string(type) +
                        "] expected an image of channels x height x width, received " +
                        x.shape().without_batch().to_string());
}

// 0, 1, ... as a column (positions of results) and as a row (positions of the input).
Value column(const Value& like, int64_t count) {
  return ops::expand_dims(ops::arange(like, 0, static_cast<double>(count)), 1);
}
Value row(const Value& like, int64_t count) {
  return ops::expand_dims(ops::arange(like, 0, static_cast<double>(count)), 0);
}

// Rows and columns of each channel by two matrices: (rows of the result x rows) and (columns of the
// result x columns). An undefined one changes nothing.
Value by_matrices(Value x, const Value& rows, const Value& columns) {
  if (columns.defined()) x = ops::matmul(x, ops::matrix_transpose(columns));
  return rows.defined() ? ops::matmul(rows, x) : x;
}

// The interpolation of `scale` times as many elements: element i lies at (i + 0.5) / scale - 0.5,
// at least 0 and at most at the last one.
Value interpolation(const Value& like, int64_t from, int64_t scale) {
  if (scale == 1) return {};
  const Value position =
      ops::clip((column(like, from * scale) + 0.5) / static_cast<double>(scale) - 0.5, 0,
                static_cast<double>(from - 1));
  return ops::maximum(1 - ops::abs(position - row(like, from)), 0);
}

struct Upsampling2d : Upsampling2dOptions {
  Value build(LayerBuilder&, Value x) const {
    check_image(kType, x);
    const int64_t n = x.shape()[0], c = x.shape()[1], h = x.shape()[2], w = x.shape()[3];
    if (method == "bilinear") {
      return by_matrices(x, interpolation(x, h, scale[0]), interpolation(x, w, scale[1]));
    }
    const Value apart = ops::reshape(x, Shape{c * h, 1, w, 1});
    return ops::reshape(ops::broadcast_to(apart, Shape{n, c * h, scale[0], w, scale[1]}),
                        Shape{c, h * scale[0], w * scale[1]});
  }
};

// The means of areas: element j belongs to area i if j < (i + 1) from / to and j + 1 > i from / to,
// compared as whole numbers.
Value area_means(const Value& like, int64_t from, int64_t to) {
  if (from == to) return {};
  // Whole numbers of f32.
  if ((from + 1) * (to + 1) >= int64_t{1} << 24) {
    throw InvalidArgument("[adaptive_average_pooling2d] " + counted(to, "area") + " of " +
                          counted(from, "row or column", "rows or columns") + " are too many");
  }
  const auto f = static_cast<double>(from), t = static_cast<double>(to);
  const Value area = column(like, to), element = row(like, from);
  const Value inside =
      ops::less(element * t, (area + 1) * f) * ops::less(area * f, (element + 1) * t);
  return inside / ops::sum(inside, {1}, true);
}

struct AdaptiveAveragePooling2d : AdaptiveAveragePooling2dOptions {
  Value build(LayerBuilder&, Value x) const {
    check_image(kType, x);
    const int64_t h = x.shape()[2], w = x.shape()[3];
    if (size == Size2d{1, 1}) return ops::global_average_pooling2d(x);
    if (h % size[0] == 0 && w % size[1] == 0) {
      const Size2d area{h / size[0], w / size[1]};
      return ops::average_pooling2d(x, {.pool = area, .stride = area});
    }
    return by_matrices(x, area_means(x, h, size[0]), area_means(x, w, size[1]));
  }
};

struct SqueezeExcitation : SqueezeExcitationOptions {
  int64_t hidden_units(int64_t channels) const {
    if ((units > 0) == (ratio > 0)) {
      throw InvalidArgument("[squeeze_excitation] needs `units` or `ratio`, and not both",
                            "ratio = 16 has a hidden unit for each 16 channels");
    }
    if (ratio > channels) {
      throw InvalidArgument("[squeeze_excitation] ratio = " + std::to_string(ratio) + " leaves " +
                            counted(channels, "channel") + " no hidden unit");
    }
    return units > 0 ? units : channels / ratio;
  }
  Value dense(LayerBuilder& layer, const std::string& name, const Value& x, int64_t outputs) const {
    const int64_t inputs = x.shape()[1];
    const Value weights =
        layer.parameter({name + "_weights", Shape{outputs, inputs}, "glorot", inputs, outputs,
                         weights_l2_factor, learning_rate_factor});
    const Value bias = layer.parameter(
        {name + "_bias", Shape{outputs}, "zeros", inputs, outputs, 0, learning_rate_factor});
    return ops::fully_connected(x, weights, bias);
  }
  Value build(LayerBuilder& layer, Value x) const {
    check_image(kType, x);
    const int64_t channels = x.shape()[1];
    const Value averages = ops::flatten(ops::global_average_pooling2d(x));
    Value y = dense(layer, "reduce", averages, hidden_units(channels));
    y = activation == "relu" ? ops::relu(y) : ops::swish(y);
    y = dense(layer, "expand", y, channels);
    y = gate == "sigmoid" ? ops::sigmoid(y) : ops::clipped_relu(y + 3, 6) / 6;
    return x * ops::reshape(y, Shape{channels, 1, 1});
  }
};

}  // namespace

void AdaptiveAveragePooling2dOptions::visit(FieldVisitor& v) {
  v.size("size", size, "[rows, columns] of the result", {.min = 1, .max = 1 << 14});
}

void Upsampling2dOptions::visit(FieldVisitor& v) {
  v.size("scale", scale, "how many times larger: one number or [rows, columns]",
         {.min = 1, .max = 1 << 10});
  v.text("method", method, "\"nearest\" repeats pixels, \"bilinear\" interpolates",
         {"nearest", "bilinear"});
}

void SqueezeExcitationOptions::visit(FieldVisitor& v) {
  v.integer("units", units, "units of the hidden layer; 0: by `ratio`", {.min = 0, .max = 1 << 20});
  v.integer("ratio", ratio, "channels for each hidden unit; 0: by `units`",
            {.min = 0, .max = 1 << 20});
  v.text("activation", activation, "of the hidden layer", {"relu", "swish"});
  v.text("gate", gate, "function of the factors", {"sigmoid", "hard_sigmoid"});
  v.number("weights_l2_factor", weights_l2_factor, "factor of the option l2 for the weights",
           {.min = 0});
  v.number("learning_rate_factor", learning_rate_factor, "factor of the learning rate; 0: frozen",
           {.min = 0});
}

LayerPtr adaptive_average_pooling2d(AdaptiveAveragePooling2dOptions options) {
  return custom_layer(AdaptiveAveragePooling2d{options});
}
LayerPtr upsampling2d(Upsampling2dOptions options) {
  return custom_layer(Upsampling2d{std::move(options)});
}
LayerPtr squeeze_excitation(SqueezeExcitationOptions options) {
  return custom_layer(SqueezeExcitation{std::move(options)});
}

LayerInfo layers::adaptive_average_pooling2d_info() {
  return layer_info<AdaptiveAveragePooling2d>();
}
LayerInfo layers::upsampling2d_info() { return layer_info<Upsampling2d>(); }
LayerInfo layers::squeeze_excitation_info() { return layer_info<SqueezeExcitation>(); }

}  // namespace lockstep
