#include "apps/lockstep/models/named_outputs.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "lockstep/base/text.h"
#include "lockstep/data/datastores/tables/category_names.h"
#include "lockstep/train/input/targets.h"

namespace lockstep::command {
namespace {

std::span<const float> part_of(std::span<const float> result, const MetricPart& part) {
  return result.subspan(static_cast<size_t>(part.first), static_cast<size_t>(part.count));
}

}  // namespace

NamedOutputs::NamedOutputs(const Model& model, int top) : top_(static_cast<size_t>(top)) {
  const std::vector<std::string>& columns = model.network.columns().target;
  for (const MetricPart& part : metric_parts(model.network)) {
    Output output{part, {}};
    for (int64_t k = 0; k < part.count; ++k) {
      const auto column = static_cast<size_t>(part.first + k);
      // A model of other data than tables has numbers in their place.
      output.names.push_back(column < columns.size()
                                 ? text_of_category(columns[column], model.preparation.categories)
                                 : std::to_string(k + 1));
    }
    outputs_.push_back(std::move(output));
  }
}

std::vector<size_t> NamedOutputs::best(const Output& output, std::span<const float> scores) const {
  std::vector<size_t> order(output.names.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t x, size_t y) { return scores[x] > scores[y]; });
  order.resize(std::min(order.size(), top_));
  return order;
}

std::string NamedOutputs::text(std::span<const float> result) const {
  std::string text;
  for (const Output& output : outputs_) {
    const std::string name = printable(output.part.name);
    const std::span<const float> values = part_of(result, output.part);
    if (output.part.classifies) {
      text += "\t" + name;
      for (const size_t k : best(output, values)) {
        text += fmt::format("\t{}\t{:.4f}", printable(output.names[k]), values[k]);
      }
      continue;
    }
    for (size_t k = 0; k < values.size(); ++k) {
      const bool alone = values.size() == 1;
      text += fmt::format("\t{}{}\t{}", name, alone ? "" : ": " + printable(output.names[k]),
                          values[k]);
    }
  }
  return text;
}

nlohmann::ordered_json NamedOutputs::json(std::span<const float> result) const {
  auto all = nlohmann::ordered_json::object();
  for (const Output& output : outputs_) {
    const std::span<const float> values = part_of(result, output.part);
    nlohmann::ordered_json& one = all[output.part.name];
    if (output.part.classifies) {
      one["top"] = nlohmann::ordered_json::array();
      for (const size_t k : best(output, values)) {
        one["top"].push_back({{"class", output.names[k]}, {"score", values[k]}});
      }
      continue;
    }
    for (size_t k = 0; k < values.size(); ++k) one["values"][output.names[k]] = values[k];
  }
  return all;
}

std::vector<std::string> NamedOutputs::metrics() const {
  std::vector<std::string> names;
  for (const Output& output : outputs_) {
    names.push_back(output.part.name + (output.part.classifies ? ": accuracy" : ": rmse"));
  }
  return names;
}

}  // namespace lockstep::command
