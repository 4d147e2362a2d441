#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/engine/nn/layers.h"
#include "lockstep/train/input/target_scaling.h"
#include "lockstep/train/input/training_data.h"

namespace lockstep {

namespace {

// The network computes (value - shift) * scale in f32, with subnormal numbers as zero. `what`: the
// input or the targets.
void check_range(const std::string& what, const std::string& how, size_t channel,
                 const ChannelSummary& of, double shift, double scale) {
  constexpr double most = std::numeric_limits<float>::max();
  constexpr double least = std::numeric_limits<float>::min();
  const double farthest = of.max < of.min ? 0 : std::max(of.max - shift, shift - of.min);
  if (scale >= least && scale <= most && farthest <= most && farthest * scale <= most) return;
  throw InvalidArgument(
      fmt::format("[training] normalization = \"{}\" of {} leaves the range of f32: channel {} has "
                  "values from {:.3g} to {:.3g} with standard deviation {:.3g}",
                  how, what, channel + 1, of.min, of.max, of.standard_deviation),
      "change the unit of these values, or set normalization = \"none\"");
}

struct Scaling {
  double shift = 0, scale = 1;  // (value - shift) * scale
};

// A constant channel is only shifted.
Scaling scaling_of(const std::string& how, const ChannelSummary& channel) {
  const auto& [mean, deviation, low, high] = channel;
  Scaling made;
  if (how == "zero-center" || how == "z-score") made.shift = mean;
  if (how == "z-score" && deviation > 0) made.scale = 1 / deviation;
  const bool rescaled = how == "rescale-zero-one" || how == "rescale-symmetric";
  if (rescaled && high == low) made.shift = low;
  if (how == "rescale-zero-one" && high > low) made = {low, 1 / (high - low)};
  if (how == "rescale-symmetric" && high > low) made = {(low + high) / 2, 2 / (high - low)};
  return made;
}

void set_state(Network& network, const std::string& name, const std::vector<float>& values) {
  const Tensor state = network.state_value(name);
  state.copy_from(Tensor::from(std::span<const float>(values), state.shape()));
}

// The features of an input that are categories: 0 or 1, which are not normalized.
std::vector<bool> categories_of(const Network& network, const std::string& input, size_t features) {
  std::vector<bool> found(features, false);
  for (const LayerNode& node : network.layers()) {
    const bool embeds = node.layer->type() == CategoryEmbeddingOptions::kType;
    if (!embeds || node.inputs.at(0) != input) continue;
    const auto fields = write_layer(*node.layer);
    const auto first = fields["first"].get<std::vector<size_t>>();
    const auto counts = fields["categories"].get<std::vector<size_t>>();
    for (size_t i = 0; i < first.size(); ++i) {
      for (size_t f = first[i]; f < std::min(features, first[i] + counts.at(i)); ++f)
        found[f] = true;
    }
  }
  return found;
}

void set_input(Network& network, const LayerNode& node,
               const std::vector<ChannelSummary>& channels) {
  const auto fields = write_layer(*node.layer);
  const std::string how = fields.value("normalization", "none");
  if (how == "kept") return;
  const Tensor offsets = network.state_value(node.name + ".offset");
  if (offsets.shape().elements() != static_cast<int64_t>(channels.size())) {
    throw InvalidArgument("[training] statistics of " + std::to_string(channels.size()) +
                          " channels do not fit the input `" + node.name + "` of " +
                          node.layer->input_shape().to_string());
  }
  std::vector<float> offset(channels.size()), factor(offset.size());
  const std::vector<bool> categories = categories_of(network, node.name, channels.size());
  for (size_t i = 0; i < channels.size(); ++i) {
    const auto [shift, scale] = scaling_of(categories[i] ? "none" : how, channels[i]);
    check_range("the input `" + node.name + "`", how, i, channels[i], shift, scale);
    offset[i] = static_cast<float>(shift) + 0.0f;  // see initial_offset()
    factor[i] = static_cast<float>(scale);
  }
  set_state(network, node.name + ".offset", offset);
  set_state(network, node.name + ".factor", factor);
}

}  // namespace

void set_input_normalization(Network& network,
                             const std::vector<std::vector<ChannelSummary>>& inputs) {
  const size_t wanted = network.input_shapes().size();
  if (inputs.size() != wanted) {
    throw InvalidArgument("[training] statistics of " + std::to_string(inputs.size()) +
                          " inputs do not fit a network with " + std::to_string(wanted));
  }
  size_t next = 0;
  for (const auto& node : network.layers()) {
    if (!node.layer->is_input()) continue;
    if (!node.layer->is_token_input()) set_input(network, node, inputs[next]);
    ++next;
  }
}

void set_input_normalization(Network& network, const std::vector<ChannelSummary>& channels) {
  for (const auto& node : network.layers()) {
    if (node.layer->is_input() && !node.layer->is_token_input()) {
      set_input(network, node, channels);
    }
  }
}

void set_input_normalization(Network& network, const ChannelStatistics& statistics) {
  set_input_normalization(network, statistics.summaries());
}

const LayerNode* target_scaling_of(const Network& network) {
  const std::vector<NetworkValue> outputs = network.outputs();
  const LayerNode* found = nullptr;
  for (const LayerNode& node : network.layers()) {
    if (node.layer->type() != DenormalizationOptions::kType) continue;
    if (outputs.size() == 1 && outputs[0].name == node.name) {
      found = &node;
      continue;
    }
    throw InvalidArgument("[training] the layer `" + node.name +
                              "` is denormalization, but not the only result of the network",
                          "it is the last layer of a network that learns numbers");
  }
  return found;
}

void set_target_scaling(Network& network, const std::vector<ChannelSummary>& channels) {
  const LayerNode* const node = target_scaling_of(network);
  if (!node) return;
  const std::string how = write_layer(*node->layer).value("normalization", "none");
  if (how == "none" || how == "kept") return;
  const std::string offsets = node->name + ".offset";
  const Shape each = network.state_value(offsets).shape();
  if (each.elements() != static_cast<int64_t>(channels.size())) {
    throw InvalidArgument("[training] statistics of " + std::to_string(channels.size()) +
                          " channels do not fit the targets of the layer `" + node->name +
                          "`, which has " + std::to_string(each.elements()));
  }
  std::vector<float> offset(channels.size()), scale(offset.size());
  const std::vector<bool> scaled = scaled_channels(network);
  for (size_t i = 0; i < channels.size(); ++i) {
    const Scaling made = scaling_of(scaled[i] ? how : "none", channels[i]);
    check_range("the targets", how, i, channels[i], made.shift, made.scale);
    offset[i] = static_cast<float>(made.shift) + 0.0f;  // see initial_offset()
    scale[i] = static_cast<float>(1 / made.scale);
  }
  set_state(network, offsets, offset);
  set_state(network, node->name + ".scale", scale);
}

}  // namespace lockstep
