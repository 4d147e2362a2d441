#include "lockstep/engine/nn/layers/normalized_values.h"

#include "lockstep/base/error.h"
#include "lockstep/engine/nn/lowering.h"
#include "lockstep/engine/ops/networks/normalized_together.h"

namespace lockstep {

std::optional<NormalizedAlone> find_normalized_alone(const LoweredNetwork& lowered) {
  for (const Graph::Node& node : lowered.graph.nodes()) {
    const Shape& x = lowered.graph.shape(node.inputs.empty() ? 0 : node.inputs[0]);
    const auto over_batch = ops::values_of_a_channel(*node.op, x);
    const auto over_group = ops::values_of_a_group(*node.op, x);
    if (over_batch.value_or(2) > 1 && over_group.value_or(2) > 1) continue;
    return NormalizedAlone{node.name, std::string(node.op->type()), over_batch.has_value()};
  }
  return std::nullopt;
}

void require_values_to_normalize(const LoweredNetwork& lowered, const std::string& where) {
  const auto found = find_normalized_alone(lowered);
  if (!found) return;
  if (found->over_observations) {
    throw InvalidArgument(where + "the layer `" + found->layer +
                              "` would normalize each channel over one value, which gives 0 "
                              "whatever the value is",
                          "give it several observations: a larger mini-batch or shard_size, and no "
                          "last mini-batch that is smaller; or run it with training = false");
  }
  throw InvalidArgument(where + "the layer `" + found->layer +
                            "` normalizes over one value, which gives 0 whatever the value is",
                        "leave it out, or put it where its input has more channels or more pixels");
}

void require_several_values(const MovingStatistics& statistics, double count,
                            const std::string& where, const std::string& whose) {
  if (!statistics.counted || count != 1) return;
  throw InvalidArgument(where + "the layer `" + statistics.layer +
                            "` would normalize single numbers, which gives 0 whatever they are: " +
                            whose + " one valid step in all",
                        "raise shard_size, or mini_batch_size if it is 1, or leave out sequences "
                        "of one step");
}

}  // namespace lockstep
