#include "lockstep/train/input/target_scaling.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "lockstep/base/counted.h"
#include "lockstep/base/error.h"
#include "lockstep/base/numeric/index_range.h"
#include "lockstep/data/batches/statistics.h"
#include "lockstep/train/input/targets.h"

namespace lockstep {
namespace {

constexpr int64_t kTargetsTogether = 1024;

// Of some targets, in order.
ArrayStatistics statistics_of(const CachedTargets& targets, const IndexRange& range) {
  const CachedValue& value = *targets.value;
  ArrayStatistics made(value.channels());
  std::vector<uint8_t> scratch;
  std::vector<float> values;
  for (int64_t i = range.first; i < range.end(); ++i) {
    const uint8_t* const example = targets.cache->get(i, scratch);
    const int64_t steps = value.sequence ? targets.cache->steps_in(value, example).count : 1;
    values.resize(static_cast<size_t>(steps * value.elements()));
    copy_target(value, example, values.data());
    made.add(values.data(), value.elements() / value.channels(), steps);
  }
  return made;
}

std::vector<ChannelSummary> target_statistics(const CachedTargets& targets, ThreadPool& pool) {
  const int64_t all = targets.cache->size();
  std::vector<ArrayStatistics> parts(
      static_cast<size_t>((all + kTargetsTogether - 1) / kTargetsTogether));
  pool.for_each(std::ssize(parts), [&](int64_t p, int) {
    const int64_t first = p * kTargetsTogether;
    parts[static_cast<size_t>(p)] =
        statistics_of(targets, {first, std::min(kTargetsTogether, all - first)});
  });
  for (size_t p = 1; p < parts.size(); ++p) parts[0].merge(parts[p]);
  return parts.at(0).summaries();
}

// What a user should know of targets that are large and not scaled, by the first ones; "" for
// others, and where reading them would read images.
std::string advice_on_scaling(const Network& network, const TrainingImages& images) {
  constexpr double large = 20;
  constexpr int64_t most = 64;  // observations
  const CachedTargets targets = targets_of(*images.training, images.targets.get());
  if (!targets || network.loss() != "mean_squared_error") return "";
  const CachedValue& value = *targets.value;
  if (value.kind != ValueKind::array || value.type != DType::f32 || targets.cache->has_images()) {
    return "";
  }
  ChannelSummary largest;
  const auto size_of = [](const ChannelSummary& channel) {
    return std::max(std::abs(channel.mean), channel.standard_deviation);
  };
  try {
    const IndexRange first{0, std::min(most, targets.cache->size())};
    for (const ChannelSummary& channel : statistics_of(targets, first).summaries()) {
      if (size_of(channel) > size_of(largest)) largest = channel;
    }
  } catch (const Error&) {
    return "";  // an observation that cannot be read ends the training where it is needed
  }
  if (size_of(largest) <= large) return "";
  char text[128];
  std::snprintf(text, sizeof text, "the targets are large (mean %.3g, standard deviation %.3g)",
                largest.mean, largest.standard_deviation);
  return std::string(text) +
         ", and networks learn numbers near 1 faster: target_scaling = \"z-score\" in [data], or a "
         "layer denormalization(), scales them";
}

}  // namespace

std::vector<bool> scaled_channels(const Network& network) {
  std::vector<bool> scaled(static_cast<size_t>(network.output_shapes().at(0)[0]), true);
  for (const NetworkPart& part : network_parts(network)) {
    // Also those of 0 and 1, such as binary_cross_entropy_with_logits.
    const bool shares = part.loss.find("cross_entropy") != std::string::npos ||
                        part.loss.find("kl_div") != std::string::npos;
    if (!shares) continue;
    std::fill_n(scaled.begin() + part.first, part.count, false);
  }
  return scaled;
}

void check_scaling(const Network& network, bool labels) {
  const LayerNode* const node = target_scaling_of(network);
  if (!node) return;
  const std::vector<bool> scaled = scaled_channels(network);
  std::string why;
  if (labels) {
    why = "` gives results in the units of targets, but the data has labels";
  } else if (std::ranges::find(scaled, true) == scaled.end()) {
    why = "` scales targets that are numbers, but all outputs learn classes";
  } else {
    return;
  }
  throw InvalidArgument("[training] the layer `" + node->name + why,
                        "leave the layer out; in a job: target_scaling = \"none\"");
}

std::string scale_targets(Network& network, const TrainingImages& images, ThreadPool& pool) {
  const LayerNode* const node = target_scaling_of(network);
  if (!node) return advice_on_scaling(network, images);
  const std::string how = write_layer(*node->layer).value("normalization", "none");
  if (how == "none" || how == "kept") return "";
  const CachedTargets targets = targets_of(*images.training, images.targets.get());
  check_scaling(network, !targets || targets.value->type == DType::i32);
  const std::vector<ChannelSummary> channels = target_statistics(targets, pool);
  set_target_scaling(network, channels);
  const std::vector<bool> scaled = scaled_channels(network);
  int64_t constant = 0;
  for (size_t c = 0; c < channels.size(); ++c) {
    constant += scaled[c] && channels[c].min == channels[c].max ? 1 : 0;
  }
  std::string notice = "the targets are learned scaled (" + how +
                       "): the loss is that of scaled ones, predictions and metrics are not scaled";
  if (constant > 0) {
    notice += "; " + counted(constant, "target") + " of " +
              std::to_string(std::ranges::count(scaled, true)) + " with one value alone " +
              (constant == 1 ? "is" : "are") + " only shifted";
  }
  return notice;
}

}  // namespace lockstep
