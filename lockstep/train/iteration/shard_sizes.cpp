#include "lockstep/train/iteration/shard_sizes.h"

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "lockstep/base/counted.h"
#include "lockstep/base/numeric/index_range.h"
#include "lockstep/engine/nn/loss.h"
#include "lockstep/engine/nn/lowering.h"
#include "lockstep/train/input/training_data.h"
#include "lockstep/train/iteration/shards.h"
#include "lockstep/train/options/options.h"

namespace lockstep {
namespace {

// Whether the network has a layer of one of these types.
bool has_layer(const Network& network, std::initializer_list<std::string_view> types) {
  const auto description = network.to_json();
  return std::ranges::any_of(description.at("layers"), [&](const auto& layer) {
    const auto type = layer.at("type").template get<std::string>();
    return std::ranges::find(types, type) != types.end();
  });
}

// "14 or 15"
std::string sizes_of(const std::vector<IndexRange>& shards) {
  const auto [least, most] = std::minmax_element(
      shards.begin(), shards.end(),
      [](const IndexRange& a, const IndexRange& b) { return a.count < b.count; });
  const std::string low = std::to_string(least->count), high = std::to_string(most->count);
  return low == high ? low : low + " or " + high;
}

int64_t rounded_up(int64_t n, int64_t each) { return (n + each - 1) / each; }

int64_t threads_of(const TrainingOptions& options) {
  return options.threads * std::max<int64_t>(options.workers.count, 1);
}

// Numbers that an observation passes through, with parameters: a measure of the work.
int64_t elements_of(const LoweredNetwork& lowered) {
  int64_t elements = 0;
  for (const Graph::Value& value : lowered.graph.values()) elements += value.shape.elements();
  return elements;
}

}  // namespace

int64_t default_shard_size(const Network& network, const Device& device) {
  if (!device.is_cpu()) return 256;
  if (has_layer(network, {"self_attention", "transformer_block"})) return 2;
  const auto inputs = network.inputs();
  return std::ranges::any_of(inputs, [](const auto& input) { return input.sequence; }) ? 8 : 16;
}

void set_shard_size(const Network& network, const Device& device, TrainingOptions& options) {
  if (options.shards.size == 0) options.shards.size = default_shard_size(network, device);
}

bool shards_are_multiples(int64_t mini_batch_size, int64_t shard_size, int64_t multiple) {
  const int64_t shards = (mini_batch_size + shard_size - 1) / shard_size;
  return mini_batch_size % shards == 0 && mini_batch_size / shards % multiple == 0;
}

std::string shard_size_note(const Network& network, const TrainingOptions& options,
                            int64_t multiple) {
  const int64_t size = options.mini_batch_size, shard = options.shards.size;
  if (multiple <= 1 || options.device != "cpu" || shards_are_multiples(size, shard, multiple) ||
      !has_layer(network, {"convolution2d"})) {
    return "";
  }
  // Smaller shards may be what gives each thread one.
  if (shard < multiple && rounded_up(size, multiple) < threads_of(options)) return "";
  const std::string text = "a mini-batch of " + std::to_string(size) + " is cut into shards of " +
                           sizes_of(cut_into_shards(size, shard)) +
                           ", but convolutions compute multiples of " + std::to_string(multiple) +
                           " faster: ";
  if (shard < multiple) return text + "shard_size = " + std::to_string(multiple) + " gives them";
  // Mini-batches above `most` are cut into shards above `largest`.
  const int64_t largest = shard / multiple * multiple;
  const int64_t most = shard == largest ? INT64_MAX : (shard - 1) / (shard - largest) * largest;
  int64_t below = size, above = size;
  while (below > 0 && !shards_are_multiples(below, shard, multiple)) --below;
  while (above <= most && !shards_are_multiples(above, shard, multiple)) ++above;
  std::string sizes = below > 0 ? std::to_string(below) : "";
  if (above <= most) sizes += (below > 0 ? " or " : "") + std::to_string(above);
  return text + "mini_batch_size = " + sizes + " gives them";
}

std::string idle_threads_note(int64_t shards, int64_t threads, int64_t workers) {
  const int64_t all = threads * std::max<int64_t>(workers, 1);
  if (shards <= 0 || shards >= all) return "";
  const bool idle_workers = workers > shards;
  return "only " + std::to_string(shards) + " of the " +
         std::to_string(idle_workers ? workers : all) + (idle_workers ? " workers " : " threads ") +
         (shards == 1 ? "is" : "are") + " useful: a mini-batch has " + counted(shards, "shard");
}

std::string smaller_shards_advice(const Network& network, const TrainingData& data,
                                  const TrainingOptions& options) {
  constexpr int64_t kWorthwhile = 50000;  // elements of an observation
  constexpr int64_t kLeastNormalized = 4;
  const int64_t size = options.mini_batch_size, shard = options.shards.size;
  const int64_t threads = std::min(threads_of(options), size);
  const int64_t shards = rounded_up(size, shard);
  if (options.device != "cpu" || shards >= threads || data.loss || is_expression(network.loss())) {
    return "";
  }
  const LoweredNetwork lowered = network.lower(1, {.training = true});
  const bool normalizes = !lowered.statistics.empty();
  const int64_t smaller = std::max(rounded_up(size, threads), normalizes ? kLeastNormalized : 1);
  if (4 * smaller > 3 * rounded_up(size, shards)) return "";
  if (elements_of(lowered) < kWorthwhile) return "";
  return "; shard_size = " + std::to_string(smaller) + " would use " +
         std::to_string(rounded_up(size, smaller)) + " threads" +
         (normalizes ? " (normalization is then over at most " + std::to_string(smaller) +
                           " observations, so results differ)"
                     : " (results then differ in their last digits)");
}

}  // namespace lockstep
