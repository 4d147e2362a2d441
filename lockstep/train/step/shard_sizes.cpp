#include "lockstep/train/step/shard_sizes.h"

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "lockstep/base/numeric/index_range.h"
#include "lockstep/train/options/options.h"
#include "lockstep/train/step/shards.h"

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

}  // namespace lockstep
