#include "lockstep/runs/jobs/networks/category_layers.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/data/datastores/tables/category_names.h"
#include "lockstep/engine/nn/layers.h"
#include "lockstep/runs/jobs/job_file.h"

namespace lockstep {
namespace {

using nlohmann::ordered_json;

struct CategoryBlocks {
  std::vector<int64_t> first, categories;
};

// The features `city=Oslo`, `city=Bergen` of each column of categories.
CategoryBlocks blocks_of(const std::vector<std::string>& features,
                         const std::vector<std::string>& categories) {
  std::vector<std::pair<int64_t, int64_t>> found;
  for (const std::string& column : categories) {
    const auto is_one = [&](const std::string& name) { return is_category_of(name, column); };
    const auto begin = std::ranges::find_if(features, is_one);
    const auto end = std::find_if_not(begin, features.end(), is_one);
    if (begin != end) found.emplace_back(begin - features.begin(), end - begin);
  }
  std::ranges::sort(found);
  CategoryBlocks blocks;
  for (const auto& [first, count] : found) {
    blocks.first.push_back(first);
    blocks.categories.push_back(count);
  }
  return blocks;
}

// Whether a network embeds the categories of an input. Throws if they are others.
bool has_layer(const ordered_json& layers, const std::string& input, const CategoryBlocks& blocks) {
  for (const ordered_json& layer : layers) {
    if (layer["type"] != CategoryEmbeddingOptions::kType || layer["inputs"].at(0) != input)
      continue;
    if (layer["first"] == blocks.first && layer["categories"] == blocks.categories) return true;
    throw InvalidArgument(
        "[data] the layer `" + layer["name"].get<std::string>() + "` has categories " +
            layer["categories"].dump() + " from the features " + layer["first"].dump() +
            ", but those of the table are " + ordered_json(blocks.categories).dump() + " from " +
            ordered_json(blocks.first).dump(),
        "the layer fits tables with the texts of its training alone");
  }
  return false;
}

void insert_layer(ordered_json& layers, size_t after, const CategoryBlocks& blocks, int64_t size) {
  const auto input = layers[after]["name"].get<std::string>();
  const std::string name = input + "_categories";
  for (ordered_json& layer : layers) {
    if (!layer.contains("inputs")) continue;
    for (ordered_json& from : layer["inputs"]) {
      if (from == input) from = name;
    }
  }
  std::vector<int64_t> units;
  for (const int64_t count : blocks.categories) {
    units.push_back(size > 0 ? size : std::min<int64_t>(50, (count + 1) / 2));
  }
  layers.insert(layers.begin() + static_cast<std::ptrdiff_t>(after + 1),
                ordered_json{{"name", name},
                             {"type", CategoryEmbeddingOptions::kType},
                             {"first", blocks.first},
                             {"categories", blocks.categories},
                             {"units", units},
                             {"inputs", ordered_json::array({input})}});
}

}  // namespace

ordered_json with_category_layers(const ordered_json& network, const JobData& data,
                                  const TableColumns& columns) {
  ordered_json made = network;
  ordered_json& layers = made["layers"];
  size_t input = 0;
  for (size_t i = 0; i < layers.size(); ++i) {
    if (layers[i].contains("inputs") || layers[i]["type"] == "shared") continue;
    const size_t k = input++;
    if (k >= columns.inputs.size()) break;
    const CategoryBlocks blocks = blocks_of(columns.inputs[k], data.categories);
    const auto name = layers[i]["name"].get<std::string>();
    if (blocks.first.empty() || has_layer(layers, name, blocks)) continue;
    insert_layer(layers, i, blocks, data.embedding_size);
  }
  const nlohmann::json description = made;
  const Network built = Network::from_json(description);
  built.check();
  return built.to_json();
}

}  // namespace lockstep
