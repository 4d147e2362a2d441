#include "tests/random_networks/case_data.h"

#include <algorithm>

#include "tests/random_networks/dice.h"

namespace lockstep::random_networks {
namespace {

using Json = nlohmann::ordered_json;

Dice dice_for(const Json& description, uint64_t purpose) {
  return Dice(description["seed"].get<uint64_t>(), description["case"].get<uint64_t>(), purpose);
}

template <class Change>
void change(const Tensor& tensor, const Change& f) {
  auto* values = tensor.data<float>();
  for (int64_t i = 0; i < tensor.shape().elements(); ++i) values[i] = f(values[i]);
}

bool ends_with(const std::string& text, const char* end) { return text.ends_with(end); }

// Pixels are 0 to 255. A network without normalization of them would have very large values.
void fill_input_state(const Tensor& value, bool factor, bool pixels, bool none, Dice& dice) {
  change(value, [&](float) {
    if (none) return factor ? (pixels ? 1.0f / 128 : 1.0f) : 0.0f;
    const double scale = pixels ? 64 : 1;
    return static_cast<float>(factor ? dice.uniform(0.5, 2) / scale
                                     : dice.uniform(-0.5, 2.5) * scale);
  });
}

}  // namespace

void fill_network(Network& network, const Json& description) {
  Dice dice = dice_for(description, 2);
  network.initialize(static_cast<uint64_t>(dice.between(0, 1 << 30)));
  for (const auto& parameter : network.parameters()) {
    const bool scale = ends_with(parameter.name, ".scale");
    const double spread = ends_with(parameter.name, ".weights") ? 0.02 : scale ? 0.3 : 0.2;
    change(parameter.value, [&](float v) {
      return static_cast<float>(static_cast<double>(v) + spread * dice.normal());
    });
  }
  for (const auto& layer : network.layers()) {
    if (!layer.shares.empty()) continue;
    const bool pixels = layer.layer->type() == "image_input";
    Json none = layer.layer->is_input() ? write_layer(*layer.layer)["normalization"] : Json();
    for (const auto& state : network.state()) {
      if (state.name.find(layer.name + ".") != 0) continue;
      if (layer.layer->is_input()) {
        fill_input_state(state.value, ends_with(state.name, ".factor"), pixels, none == "none",
                         dice);
      } else {
        const bool variance = ends_with(state.name, ".variance");
        change(state.value, [&](float) {
          return static_cast<float>(variance ? dice.uniform(0.3, 3) : dice.normal());
        });
      }
    }
  }
}

MiniBatch make_batch(const Network& network, const Json& description, int64_t iteration) {
  Dice dice = dice_for(description, 10 + static_cast<uint64_t>(iteration));
  const auto rows = description["rows"].get<int64_t>();
  const Shape input = network.input_shapes()[0], output = network.output_shapes()[0];
  MiniBatch batch;
  const auto with_rows = [&](const Shape& shape) {
    std::vector<int64_t> dims = shape.dims();
    dims.insert(dims.begin(), rows);
    return Shape(dims);
  };
  std::vector<uint8_t> bytes;
  std::vector<float> values, targets;
  std::vector<int32_t> labels;
  const bool pixels = input.rank() == 3;
  const int64_t elements = rows * input.elements();
  for (int64_t i = 0; i < elements && pixels; ++i) {
    bytes.push_back(static_cast<uint8_t>(dice.between(0, 255)));
  }
  for (int64_t i = 0; i < elements && !pixels; ++i) {
    values.push_back(static_cast<float>(0.5 + dice.normal()));
  }
  const bool labeled = network.loss() == "cross_entropy";
  for (int64_t i = 0; i < rows; ++i) {
    batch.observations.push_back(i);
    const int64_t classes = labeled ? output.elements() : 1;
    labels.push_back(static_cast<int32_t>(dice.between(0, classes - 1)));
  }
  for (int64_t i = 0; i < rows * output.elements() && !labeled; ++i) {
    targets.push_back(static_cast<float>(dice.normal()));
  }
  batch.set("input", pixels ? Tensor::from(bytes, with_rows(input))
                            : Tensor::from(values, with_rows(input)));
  if (!labeled) batch.set("targets", Tensor::from(targets, with_rows(output)));
  batch.set("labels", Tensor::from(labels, {rows}));
  return batch;
}

std::vector<Tensor> make_inputs(const Network& network, const Json& description) {
  Dice dice = dice_for(description, 10);
  std::vector<Tensor> inputs;
  const auto shapes = network.input_shapes();
  // All inputs have the same type.
  const bool pixels = dice.chance(50) && std::all_of(shapes.begin(), shapes.end(),
                                                     [](const Shape& s) { return s.rank() == 3; });
  for (const Shape& shape : shapes) {
    std::vector<int64_t> dims = shape.dims();
    dims.insert(dims.begin(), description["rows"].get<int64_t>());
    const Shape all(dims);
    const auto count = static_cast<size_t>(all.elements());
    if (pixels) {
      std::vector<uint8_t> values(count);
      for (auto& v : values) v = static_cast<uint8_t>(dice.between(0, 255));
      inputs.push_back(Tensor::from(values, all));
    } else {
      const double scale = shape.rank() == 3 ? 64 : 1;
      std::vector<float> values(count);
      for (auto& v : values) v = static_cast<float>(scale * (0.5 + dice.normal()));
      inputs.push_back(Tensor::from(values, all));
    }
  }
  return inputs;
}

}  // namespace lockstep::random_networks
