#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/train/input/training_data.h"

namespace lockstep {

namespace {

// The network computes (value - shift) * scale in f32, with subnormal numbers as zero.
void check_range(const LayerNode& node, const std::string& how, size_t channel,
                 const ChannelSummary& of, double shift, double scale) {
  constexpr double most = std::numeric_limits<float>::max();
  constexpr double least = std::numeric_limits<float>::min();
  const double farthest = of.max < of.min ? 0 : std::max(of.max - shift, shift - of.min);
  if (scale >= least && scale <= most && farthest <= most && farthest * scale <= most) return;
  throw InvalidArgument(
      fmt::format("[training] normalization = \"{}\" of the input `{}` leaves the range of f32: "
                  "channel {} has values from {:.3g} to {:.3g} with standard deviation {:.3g}",
                  how, node.name, channel + 1, of.min, of.max, of.standard_deviation),
      "change the unit of these values, or set normalization = \"none\"");
}

void set_input(Network& network, const LayerNode& node,
               const std::vector<ChannelSummary>& channels) {
  const auto fields = write_layer(*node.layer);
  const std::string how = fields.value("normalization", "none");
  if (how == "kept") return;
  const Tensor offsets = network.state_value(node.name + ".offset"),
               factors = network.state_value(node.name + ".factor");
  if (offsets.shape().elements() != static_cast<int64_t>(channels.size())) {
    throw InvalidArgument("[training] statistics of " + std::to_string(channels.size()) +
                          " channels do not fit the input `" + node.name + "` of " +
                          node.layer->input_shape().to_string());
  }
  std::vector<float> offset(channels.size()), factor(offset.size());
  for (size_t i = 0; i < channels.size(); ++i) {
    const auto& [mean, deviation, low, high] = channels[i];
    double shift = 0, scale = 1;
    if (how == "zero-center" || how == "z-score") shift = mean;
    if (how == "z-score" && deviation > 0) scale = 1 / deviation;
    const bool rescaled = how == "rescale-zero-one" || how == "rescale-symmetric";
    if (rescaled && high == low) shift = low;
    if (how == "rescale-zero-one" && high > low) {
      shift = low;
      scale = 1 / (high - low);
    }
    if (how == "rescale-symmetric" && high > low) {
      shift = (low + high) / 2;
      scale = 2 / (high - low);
    }
    check_range(node, how, i, channels[i], shift, scale);
    offset[i] = static_cast<float>(shift) + 0.0f;  // see initial_offset()
    factor[i] = static_cast<float>(scale);
  }
  offsets.copy_from(Tensor::from(std::span<const float>(offset), offsets.shape()));
  factors.copy_from(Tensor::from(std::span<const float>(factor), factors.shape()));
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

}  // namespace lockstep
