#include "lockstep/train/input_normalization.h"

#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"

namespace lockstep {

void set_input_normalization(Network& network, const ChannelStatistics& statistics) {
  for (const auto& node : network.layers()) {
    if (!node.layer->is_input()) continue;
    const auto fields = write_layer(*node.layer);
    const std::string how = fields.value("normalization", "none");
    const Tensor offsets = network.state_value(node.name + ".offset"),
                 factors = network.state_value(node.name + ".factor");
    if (offsets.shape().elements() != statistics.channels()) {
      throw InvalidArgument("[training] statistics of " + std::to_string(statistics.channels()) +
                            " channels do not fit the input `" + node.name + "` of " +
                            node.layer->input_shape().to_string());
    }
    std::vector<float> offset(static_cast<size_t>(statistics.channels())), factor(offset.size());
    for (int64_t c = 0; c < statistics.channels(); ++c) {
      const auto i = static_cast<size_t>(c);
      const double low = statistics.min[i], high = statistics.max[i];
      double shift = 0, scale = 1;
      if (how == "zero-center" || how == "z-score") shift = statistics.mean(c);
      if (how == "z-score" && statistics.standard_deviation(c) > 0) {
        scale = 1 / statistics.standard_deviation(c);
      }
      if (how == "rescale-zero-one" && high > low) {
        shift = low;
        scale = 1 / (high - low);
      }
      if (how == "rescale-symmetric" && high > low) {
        shift = (low + high) / 2;
        scale = 2 / (high - low);
      }
      offset[i] = static_cast<float>(shift);
      factor[i] = static_cast<float>(scale);
    }
    offsets.copy_from(Tensor::from(std::span<const float>(offset), offsets.shape()));
    factors.copy_from(Tensor::from(std::span<const float>(factor), factors.shape()));
  }
}

}  // namespace lockstep
