#include "lockstep/runs/jobs/networks/network_text.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "lockstep/base/error.h"
#include "lockstep/runs/jobs/job_file.h"
#include "lockstep/runs/jobs/job_source.h"
#include "lockstep/runs/jobs/networks/layer_groups.h"

namespace lockstep {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr size_t longest_period = 64;
constexpr const char* input_name = "input";

std::string value_text(const ordered_json& value) {
  if (!value.is_array()) return value.dump();
  std::string text;
  for (const auto& entry : value) text += (text.empty() ? "" : ", ") + value_text(entry);
  return "[" + text + "]";
}

// "key = value" for each field, separated by commas.
std::string fields_text(const ordered_json& fields) {
  std::string text;
  for (const auto& [key, value] : fields.items()) {
    text += (text.empty() ? "" : ", ") + key + " = " + value_text(value);
  }
  return text;
}

// The layer's fields without the optional ones that have their defaults (kernel and pool are always
// kept). Several equal numbers are written as one number if it is read as the same value.
ordered_json short_fields(const Layer& layer) {
  const ordered_json all = write_layer(layer);
  ordered_json kept = all;
  const auto same = [&](const ordered_json& fields) {
    try {
      return write_layer(*read_layer(json(fields), "network", {}, {})) == all;
    } catch (const InvalidArgument&) {
      return false;
    }
  };
  for (const auto& [key, value] : all.items()) {
    if (key == "type") continue;
    ordered_json shorter = kept;
    shorter.erase(key);
    if (key != "kernel" && key != "pool" && same(shorter)) {
      kept = std::move(shorter);
    } else if (value.is_array() && !value.empty()) {
      shorter = kept;
      shorter[key] = value[0];
      if (same(shorter)) kept = std::move(shorter);
    }
  }
  return kept;
}

// A layer as an entry of the list.
struct Entry {
  std::string fields;   // type and fields as text
  std::string name;     // "": derived from its type and number
  bool inputs = false;  // whether inputs are written; else the input is the previous layer
};

class Writer {
 public:
  explicit Writer(const Network& network) : nodes_(network.layers()) {
    for (size_t i = 0; i < nodes_.size(); ++i) indices_[nodes_[i].name] = i;
    std::set<std::string> referred;
    for (size_t i = 0; i < nodes_.size(); ++i) {
      if (!follows(i)) referred.insert(nodes_[i].inputs.begin(), nodes_[i].inputs.end());
      if (!nodes_[i].shares.empty()) referred.insert(nodes_[i].shares);
    }
    // Numbers the layers without a name in the same way as expand_layers().
    std::map<std::string, int64_t> numbers;
    for (size_t i = 0; i < nodes_.size(); ++i) {
      const LayerNode& node = nodes_[i];
      const std::string type = node.shares.empty() ? std::string(node.layer->type()) : "shared";
      const bool numbered = node.name == type + "_" + std::to_string(numbers[type] + 1);
      if (numbered) ++numbers[type];
      ordered_json fields;
      if (node.shares.empty()) {
        fields = short_fields(*node.layer);
      } else {
        fields["type"] = "shared";
        fields["layer"] = node.shares;
      }
      entries_.push_back({fields_text(fields),
                          numbered && !referred.contains(node.name) ? "" : node.name, !follows(i)});
    }
  }

  std::string text(const std::string& loss, bool groups) const {
    std::string out = "[network]\n";
    size_t i = 0;
    if (short_input()) {
      ordered_json fields = short_fields(*nodes_[0].layer);
      fields.erase("type");
      out += "input = { " + fields_text(fields) + " }\n";
      i = 1;
    }
    out += "layers = [\n";
    while (i < nodes_.size()) {
      const auto [period, count] = groups ? repetition(i) : Repetition{};
      if (count > 1) {
        out += "  { repeat = " + std::to_string(count) + ", layers = [\n";
        for (size_t j = i; j < i + period; ++j) {
          out += "    " + line(j, i, true) + (j + 1 < i + period ? ",\n" : " ] },\n");
        }
        i += period * count;
      } else {
        out += "  " + line(i, i, false) + ",\n";
        ++i;
      }
    }
    return out + "]\nloss = " + json(loss).dump() + "\n";
  }

 private:
  struct Repetition {
    size_t period = 1, count = 1;
  };

  bool short_input() const {
    return !nodes_.empty() && nodes_[0].name == input_name &&
           nodes_[0].layer->type() == "image_input";
  }

  // Whether the layer needs no `inputs`: its only input is the previous layer, or it is an input
  // layer.
  bool follows(size_t i) const {
    const auto& inputs = nodes_[i].inputs;
    if (nodes_[i].layer->is_input()) return true;
    return i > 0 && inputs.size() == 1 && inputs[0] == nodes_[i - 1].name;
  }

  // The name without the suffix of repetition `r` (from 0), or "" if it does not have that suffix.
  static std::string base_name(const std::string& name, size_t r) {
    const std::string suffix = "_" + std::to_string(r + 1);
    return name.ends_with(suffix) ? name.substr(0, name.size() - suffix.size()) : "";
  }

  // The reference to layer `name` from repetition `r`, which begins at `start`: its name in the
  // group, group_input, or its full name.
  std::string reference(const std::string& name, size_t start, size_t period, size_t r) const {
    const auto found = indices_.find(name);
    if (found == indices_.end()) return name;
    if (found->second + 1 == start) return "group_input";
    const bool inside = found->second >= start && found->second < start + period;
    return inside ? base_name(name, r) : name;
  }

  // Whether repetition r of the `period` layers from i on equals the first one.
  bool repeats(size_t i, size_t period, size_t r) const {
    for (size_t j = 0; j < period; ++j) {
      const size_t a = i + j, b = i + r * period + j;
      if (entries_[a].fields != entries_[b].fields || entries_[a].inputs != entries_[b].inputs ||
          entries_[a].name.empty() != entries_[b].name.empty()) {
        return false;
      }
      if (!entries_[a].name.empty()) {
        const std::string base = base_name(entries_[a].name, 0);
        if (base.empty() || base != base_name(entries_[b].name, r)) return false;
      }
      const auto &x = nodes_[a].inputs, &y = nodes_[b].inputs;
      if (!entries_[a].inputs) continue;
      if (x.size() != y.size()) return false;
      for (size_t k = 0; k < x.size(); ++k) {
        if (reference(x[k], i, period, 0) != reference(y[k], i + r * period, period, r)) {
          return false;
        }
      }
    }
    return true;
  }

  // The repetition from i on that saves the most lines.
  Repetition repetition(size_t i) const {
    Repetition best;
    size_t saved = 1;
    for (size_t period = 1; period <= longest_period && i + 2 * period <= nodes_.size(); ++period) {
      size_t count = 1;
      while (i + (count + 1) * period <= nodes_.size() && repeats(i, period, count)) ++count;
      if ((count - 1) * period > saved) {
        saved = (count - 1) * period;
        best = {period, count};
      }
    }
    return best;
  }

  std::string line(size_t i, size_t start, bool in_group) const {
    const Entry& entry = entries_[i];
    std::string text = "{ " + entry.fields;
    if (!entry.name.empty()) {
      text += ", name = " + json(in_group ? base_name(entry.name, 0) : entry.name).dump();
    }
    if (entry.inputs) {
      ordered_json inputs = ordered_json::array();
      for (const auto& name : nodes_[i].inputs) {
        inputs.push_back(in_group ? reference(name, start, i - start + 1, 0) : name);
      }
      text += ", inputs = " + value_text(inputs);
    }
    return text + " }";
  }

  const std::vector<LayerNode>& nodes_;
  std::map<std::string, size_t> indices_;
  std::vector<Entry> entries_;
};

bool reads_as(const std::string& text, const Network& network) {
  try {
    JobSource source = parse_job_source(text, "network");
    json resolved;
    resolved["layers"] = expand_layers(source.tree["network"], {}, max_job_layers,
                                       [](const std::string&) { return std::string(); });
    resolved["loss"] = source.tree["network"]["loss"];
    return Network::from_json(resolved).to_json() == network.to_json();
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

std::string network_text(const Network& network) {
  network.check();
  const Writer writer(network);
  for (const bool groups : {true, false}) {
    std::string text = writer.text(network.loss(), groups);
    // Names in a group may collide with other names, so the text is read back as a check.
    if (reads_as(text, network)) return text;
  }
  throw InternalError("[network] its text describes another network");
}

}  // namespace lockstep
