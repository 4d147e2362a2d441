#include "tests/random_networks/layer_maker.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/engine/nn/layers.h"
#include "lockstep/engine/nn/network.h"

namespace lockstep::random_networks {
namespace {

using Json = nlohmann::ordered_json;

// Near the widths of vectors and blocks, and far from them.
const std::vector<int64_t> kChannels{1,  1,  2,  2,  3,  3,  4,  5,  6,  7,  8,
                                     8,  9,  10, 11, 12, 13, 15, 16, 16, 16, 17,
                                     20, 24, 31, 32, 32, 33, 40, 48, 64, 65};

Json input_of(const Shape& shape, int64_t steps = 0) {
  if (steps > 0) return {{"type", "sequence_input"}, {"channels", shape[0]}};
  switch (shape.rank()) {
    case 1:
      return {{"type", "feature_input"}, {"features", shape[0]}};
    case 2:
      return {{"type", "sequence_input"}, {"channels", shape[0]}, {"length", shape[1]}};
    case 3:
      return {{"type", "image_input"},
              {"channels", shape[0]},
              {"height", shape[1]},
              {"width", shape[2]}};
    default:
      return {{"type", "image3d_input"},
              {"channels", shape[0]},
              {"depth", shape[1]},
              {"height", shape[2]},
              {"width", shape[3]}};
  }
}

int64_t axes_of(const std::string& type) { return type[type.size() - 2] - '0'; }

// One number for all axes, or a list of them.
Json per_axis(Dice& dice, int64_t axes, const std::vector<int64_t>& choices) {
  if (axes == 1 || dice.chance(50)) return dice.pick(choices);
  Json list = Json::array();
  for (int64_t a = 0; a < axes; ++a) list.push_back(dice.pick(choices));
  return list;
}

Json draw_padding(Dice& dice, int64_t axes) {
  if (dice.chance(45)) return "same";
  if (dice.chance(40)) return dice.between(0, 2);
  Json list = Json::array();
  for (int64_t a = 0; a < 2 * axes; ++a) list.push_back(dice.between(0, 2));
  return list;
}

void draw_weights(Dice& dice, Json& layer) {
  if (dice.chance(25)) layer["bias"] = false;
  if (dice.chance(30)) {
    layer["weights_initializer"] = dice.pick<std::string>({"glorot", "he", "orthogonal"});
  }
  if (dice.chance(15)) layer["weights_l2_factor"] = dice.pick<double>({0, 0.5, 3});
  if (dice.chance(15)) layer["weights_learning_rate_factor"] = dice.pick<double>({0, 0.5, 2});
}

int64_t a_divisor(Dice& dice, int64_t n) {
  std::vector<int64_t> divisors;
  for (int64_t d = 1; d <= n; ++d) {
    if (n % d == 0) divisors.push_back(d);
  }
  return dice.pick(divisors);
}

void draw_convolution(Dice& dice, Json& layer, int64_t channels, bool transposed) {
  const int64_t axes = axes_of(layer["type"]);
  int64_t filters = dice.pick(kChannels);
  if (dice.chance(25)) {
    const int64_t groups = dice.chance(40) ? channels : a_divisor(dice, channels);
    layer["groups"] = groups;
    filters = groups * dice.between(1, groups > 8 ? 2 : 5);
  } else if (dice.chance(10)) {
    filters = channels;
  }
  layer["filters"] = filters;
  layer["kernel"] = per_axis(dice, axes,
                             axes == 3 ? std::vector<int64_t>{1, 2, 3, 3}
                                       : std::vector<int64_t>{1, 1, 2, 3, 3, 3, 4, 5, 7});
  if (dice.chance(transposed ? 60 : 40)) {
    layer["stride"] = per_axis(dice, axes, {1, 2, 2, 3, 4});
  }
  if (dice.chance(20)) layer["dilation"] = per_axis(dice, axes, {1, 2, 3});
  if (dice.chance(70)) layer["padding"] = draw_padding(dice, axes);
  draw_weights(dice, layer);
}

void draw_pooling(Dice& dice, Json& layer, bool average) {
  const int64_t axes = axes_of(layer["type"]);
  layer["pool"] = per_axis(dice, axes, {1, 2, 2, 3, 3, 4});
  if (dice.chance(40)) {
    layer["stride"] = layer["pool"];  // non-overlapping: fused with the layer before
  } else {
    layer["stride"] = per_axis(dice, axes, {1, 2, 3});
  }
  if (dice.chance(45)) layer["padding"] = draw_padding(dice, axes);
  if (average && dice.chance(50)) layer["count_padding"] = false;
}

// Another shape with the same number of elements.
Json draw_size(Dice& dice, const Shape& input) {
  int64_t left = input.elements();
  Json size = Json::array();
  const int64_t rank = dice.between(1, 4);
  for (int64_t a = 1; a < rank; ++a) {
    size.push_back(a_divisor(dice, left));
    left /= size.back().get<int64_t>();
  }
  size.push_back(left);
  return size;
}

bool is_window(const std::string& type, const char* kind) { return type.find(kind) == 0; }

}  // namespace

std::optional<Measured> measure(const Json& layer, const std::vector<Shape>& inputs,
                                int64_t steps) {
  Json network{{"layers", Json::array()}};
  Json with_inputs = layer;
  with_inputs["name"] = "layer";
  with_inputs["inputs"] = Json::array();
  for (size_t i = 0; i < inputs.size(); ++i) {
    Json input = input_of(inputs[i], steps);
    input["name"] = "in_" + std::to_string(i);
    with_inputs["inputs"].push_back(input["name"]);
    network["layers"].push_back(std::move(input));
  }
  network["layers"].push_back(std::move(with_inputs));
  try {
    const Network made = Network::from_json(network);
    if (!made.analyze().empty()) return std::nullopt;
    Measured m{made.output_shapes().at(0)};
    for (const auto& [name, shape] : made.value_shapes()) {
      if (name.find("layer.") == 0) m.parameters += shape.elements();
      if (name != "layer.weights") continue;
      const bool transposed = layer["type"] == "transposed_convolution2d";
      const Shape& moved_over = transposed ? inputs[0] : m.shape;
      m.multiplications = shape.elements() * moved_over.elements() / moved_over[0];
    }
    return m;
  } catch (const InvalidArgument&) {
    return std::nullopt;
  }
}

std::vector<std::string> types_for(const Shape& shape, bool known) {
  std::vector<std::string> types{"fully_connected",
                                 "batch_normalization",
                                 "layer_normalization",
                                 "instance_normalization",
                                 "group_normalization",
                                 "relu",
                                 "relu",
                                 "clipped_relu",
                                 "leaky_relu",
                                 "elu",
                                 "gelu",
                                 "swish",
                                 "tanh",
                                 "sigmoid",
                                 "softplus",
                                 "softmax",
                                 "dropout",
                                 "flatten",
                                 "reshape",
                                 "addition",
                                 "addition",
                                 "multiplication",
                                 "concatenation",
                                 "concatenation",
                                 "shared",
                                 "batch_normalization"};
  const int axes = shape.rank() - 1;
  if (known) {
    types.insert(types.end(),
                 {"hard_sigmoid", "hard_swish", "hard_swish", "layer_scale",
                  "channel_normalization", "channel_normalization", "stochastic_depth"});
  }
  if (known && axes == 2) {
    for (int i = 0; i < 2; ++i) {
      types.insert(types.end(), {"adaptive_average_pooling2d", "squeeze_excitation", "upsampling2d",
                                 "pixels_to_steps"});
    }
  }
  if (axes == 0) {
    types.insert(types.end(), {"fully_connected", "fully_connected", "fully_connected"});
    return types;
  }
  const std::string d = std::to_string(axes) + "d";
  for (int i = 0; i < 5; ++i) types.push_back("convolution" + d);
  for (const char* kind : {"max_pooling", "average_pooling", "global_average_pooling"}) {
    types.push_back(kind + d);
    types.push_back(kind + d);
  }
  if (axes == 2) types.insert(types.end(), {"transposed_convolution2d", "convolution2d"});
  return types;
}

Json draw_layer(Dice& dice, const std::string& type, const Shape& input) {
  Json layer{{"type", type}};
  const int64_t channels = input[0];
  if (is_window(type, "convolution") || is_window(type, "transposed")) {
    draw_convolution(dice, layer, channels, is_window(type, "transposed"));
  } else if (is_window(type, "max_pooling") || is_window(type, "average_pooling")) {
    draw_pooling(dice, layer, is_window(type, "average"));
  } else if (type == "fully_connected") {
    layer["units"] = dice.pick(kChannels);
    draw_weights(dice, layer);
  } else if (type == "group_normalization") {
    layer["groups"] = a_divisor(dice, channels);
  } else if (type == "clipped_relu") {
    layer["ceiling"] = dice.uniform(0.2, 3);
  } else if (type == "leaky_relu") {
    layer["scale"] = dice.pick<double>({0, 0.01, 0.3, 1});
  } else if (type == "elu") {
    layer["alpha"] = dice.uniform(0.1, 2);
  } else if (type == "gelu") {
    layer["approximation"] = dice.pick<std::string>({"none", "tanh"});
  } else if (type == "dropout" || type == "stochastic_depth") {
    layer["probability"] = dice.pick<double>({0, 0.1, 0.5, 0.9});
  } else if (type == "layer_scale") {
    layer["initial"] = dice.pick<double>({1e-6, 0.1, 1});
  } else if (type == "adaptive_average_pooling2d") {
    layer["size"] = {dice.pick<int64_t>({1, 2, 3, 5, 7}), dice.pick<int64_t>({1, 2, 3, 4})};
  } else if (type == "upsampling2d") {
    layer["scale"] = per_axis(dice, 2, {1, 2, 2, 3});
    layer["method"] = dice.pick<std::string>({"nearest", "bilinear"});
  } else if (type == "squeeze_excitation") {
    dice.chance(50) ? layer["units"] = dice.between(1, 9)
                    : layer["ratio"] = a_divisor(dice, channels);
    layer["activation"] = dice.pick<std::string>({"relu", "swish"});
    layer["gate"] = dice.pick<std::string>({"sigmoid", "hard_sigmoid"});
  } else if (type == "reshape") {
    layer["size"] = draw_size(dice, input);
  }
  if (type.find("_normalization") != std::string::npos) {
    if (dice.chance(25)) layer["epsilon"] = dice.pick<double>({1e-6, 1e-3, 0.1});
    if (dice.chance(20)) layer["l2_factor"] = 0.5;
    if (type == "batch_normalization" && dice.chance(25)) {
      layer["momentum"] = dice.pick<double>({0, 0.01, 0.5, 1});
    }
  }
  return layer;
}

Json draw_input(Dice& dice, bool large) {
  const std::vector<int64_t> extents{1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 14, 16, 17, 19, 23};
  Json input;
  if (large) {
    const int64_t side = dice.pick<int64_t>({64, 97, 128, 129, 200, 256});
    input = input_of({dice.pick<int64_t>({1, 1, 2, 3}), side, dice.chance(50) ? side : side / 2});
  } else {
    const int64_t kind = dice.between(1, 10);
    const int64_t channels = dice.pick(kChannels);
    const int64_t a = dice.pick(extents), b = dice.pick(extents);
    if (kind <= 5) {
      input = input_of({dice.chance(60) ? dice.pick<int64_t>({1, 3}) : channels, a, b});
    } else if (kind <= 6) {
      input = input_of({dice.chance(20) ? int64_t{1} : dice.between(1, 70)});
    } else if (kind <= 8) {
      input = input_of({channels, dice.between(1, 60)});
    } else {
      input = input_of({dice.between(1, 5), std::min<int64_t>(a, 6), std::min<int64_t>(b, 8),
                        dice.between(1, 8)});
    }
  }
  input["normalization"] = dice.pick<std::string>(
      {"none", "zero-center", "z-score", "rescale-zero-one", "rescale-symmetric"});
  return input;
}

}  // namespace lockstep::random_networks
