#include "lockstep/engine/nn/inputs/input_statistics.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/engine/nn/layers.h"
#include "lockstep/engine/nn/network.h"

namespace lockstep {
namespace {

bool is_missing(const NetworkState& offset) {
  if (offset.value.raw() == nullptr) return false;  // only sizes
  const std::vector<float> values = offset.value.to_vector();
  return std::ranges::all_of(values, [](float v) { return v == 0 && std::signbit(v); });
}

}  // namespace

void require_input_statistics(const Network& network) {
  for (const LayerNode& node : network.layers()) {
    const bool scales = node.layer->type() == DenormalizationOptions::kType;
    if ((!node.layer->is_input() && !scales) || !node.shares.empty()) continue;
    const auto offset =
        std::ranges::find(network.state(), node.name + ".offset", &NetworkState::name);
    if (offset == network.state().end() || !is_missing(*offset)) continue;
    const auto fields = write_layer(*node.layer);
    if (scales) {
      throw InvalidArgument("[network] the layer `" + node.name + "` has normalization = \"" +
                                fields.value("normalization", "") +
                                "\", but no statistics of the training targets",
                            "call set_target_scaling(network, statistics.summaries()) before a "
                            "loop of your own; train() computes them itself");
    }
    throw InvalidArgument(
        "[network] the input `" + node.name + "` has normalization = \"" +
            fields.value("normalization", "") + "\", but no statistics of the training data",
        "call set_input_normalization(network, queue.channels(pool)) before a loop of your own, or "
        "make the input with normalization = \"none\"; train() computes them itself");
  }
}

}  // namespace lockstep
