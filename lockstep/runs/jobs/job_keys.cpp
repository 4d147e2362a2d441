#include "lockstep/runs/jobs/job_keys.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/suggest.h"
#include "lockstep/runs/jobs/job_file.h"
#include "lockstep/runs/jobs/networks/layer_groups.h"

namespace lockstep {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

std::vector<std::string> fields_in(const JobTable& table) {
  std::vector<std::string> names;
  for (const FieldInfo& field : table.fields) names.push_back(field.name);
  return names;
}

// The table that a key without dots belongs to.
std::string home_of(const json& tree, const std::string& key) {
  std::vector<std::pair<std::string, std::vector<std::string>>> homes;
  std::vector<std::string> variables, of_network;
  if (tree.contains("variables") && tree["variables"].is_object()) {
    for (const auto& [name, unused] : tree["variables"].items()) variables.push_back(name);
  }
  homes.emplace_back("variables", std::move(variables));
  for (const JobTable& table : job_tables()) {
    if (table.name == "network") {
      of_network = fields_in(table);
    } else {
      homes.emplace_back(table.name, fields_in(table));
    }
  }
  if (key == "name") return "";
  std::string found;
  std::vector<std::string> known;
  for (const auto& [home, names] : homes) {
    known.insert(known.end(), names.begin(), names.end());
    if (std::find(names.begin(), names.end(), key) == names.end()) continue;
    if (!found.empty() && home == "sweep") continue;  // `seed` means the training's
    if (!found.empty()) {
      throw InvalidArgument("[--set] `" + key + "` is in [" + found + "] and in [" + home + "]",
                            "write " + found + "." + key + " or " + home + "." + key);
    }
    found = home;
  }
  if (!found.empty()) return found;
  // The fields of [network] need its name.
  known.insert(known.end(), of_network.begin(), of_network.end());
  std::string near = nearest_name(key, known);
  if (std::find(of_network.begin(), of_network.end(), near) != of_network.end()) {
    near = "network." + near;
  }
  throw InvalidArgument(
      "[--set] there is no variable or field `" + key + "`",
      near.empty() ? "`lockstep reference` lists all fields" : "did you mean `" + near + "`?");
}

// Whether a key names the layer, or a field of it.
bool is_of(const std::string& key, const std::string& layer) {
  return !layer.empty() && key.starts_with(layer) &&
         (key.size() == layer.size() || key[layer.size()] == '.');
}

// "/network/layers/3" -> "network.layers.3"
std::string dotted(std::string pointer) {
  std::replace(pointer.begin(), pointer.end(), '/', '.');
  return pointer.substr(1);
}

// For "conv.filters", which follows "network.layers.": the path of that field.
std::string path_of_layer(const json& tree, const std::string& key) {
  const Variables variables = job_variables(tree);
  const auto evaluate = [&](const std::string& text, const std::string& where) {
    return variables.evaluate(text, where);
  };
  std::vector<std::string> pointers, names;
  const ordered_json layers = expand_layers(
      tree["network"], evaluate, max_job_layers, [](const auto&) { return std::string(); },
      &pointers);
  // The name in the file, of one that got a suffix in its repetitions.
  const auto given = [&](size_t i) {
    const json& entry = tree[json::json_pointer(pointers[i])];
    return entry.contains("name") ? entry["name"].get<std::string>() : std::string();
  };
  std::string name, pointer;
  for (size_t i = 0; i < layers.size(); ++i) {
    names.push_back(layers[i]["name"].get<std::string>());
    if (is_of(key, names[i]) && names[i].size() > name.size()) {
      name = names[i];
      pointer = pointers[i];
    }
  }
  // A full name precedes one of the file of the same length.
  std::string other;
  for (size_t i = 0; i < layers.size(); ++i) {
    const std::string known = given(i);
    if (!is_of(key, known) || known == names[i]) continue;
    if (known.size() > name.size()) {
      name = known;
      pointer = pointers[i];
      other.clear();
    } else if (known == name && std::find(names.begin(), names.end(), name) == names.end() &&
               pointers[i] != pointer) {
      other = pointers[i];
    }
  }
  if (!other.empty()) {
    const std::string field = key.substr(name.size());
    throw InvalidArgument("[--set] network.layers." + key +
                              ": several layers of the file have the name `" + name + "`",
                          "write " + dotted(pointer) + field + " or " + dotted(other) + field);
  }
  if (name.empty()) {
    const std::string part = key.substr(0, key.find('.'));
    throw InvalidArgument("[--set] network.layers." + key + ": there is no layer `" + part + "`",
                          suggest(part, names));
  }
  const auto at =
      static_cast<size_t>(std::find(pointers.begin(), pointers.end(), pointer) - pointers.begin());
  const auto repetitions = std::count(pointers.begin(), pointers.end(), pointer);
  if (repetitions > 1 && given(at) != name) {
    throw InvalidArgument(
        "[--set] network.layers." + key + ": `" + name + "` is one of " +
            std::to_string(repetitions) + " repetitions of a layer, which have the same fields",
        "for all of them: " +
            (given(at).empty() ? dotted(pointer) : "network.layers." + given(at)) +
            key.substr(name.size()));
  }
  return dotted(pointer) + key.substr(name.size());
}

}  // namespace

Variables job_variables(const json& tree) {
  std::map<std::string, Variables::Definition> definitions;
  if (!tree.contains("variables")) return {};
  if (!tree["variables"].is_object()) throw InvalidArgument("[variables] must be a table");
  for (const auto& [name, value] : tree["variables"].items()) {
    if (value.is_number()) {
      definitions[name] = value.get<double>();
    } else if (value.is_string()) {
      definitions[name] = value.get<std::string>();
    } else {
      throw InvalidArgument("[variables." + name +
                            "] must be a number or an expression, received " + value.dump());
    }
  }
  return Variables(definitions);
}

std::string path_of_key(const json& tree, const std::string& key) {
  if (key.find('.') == std::string::npos) {
    const std::string home = home_of(tree, key);
    return home.empty() ? key : home + "." + key;
  }
  const std::string layers = "network.layers.";
  if (!key.starts_with(layers)) return key;
  const std::string rest = key.substr(layers.size()), part = rest.substr(0, rest.find('.'));
  const bool position = !part.empty() && part.find_first_not_of("0123456789") == std::string::npos;
  const bool there =
      tree.contains("network") && tree["network"].is_object() && tree["network"].contains("layers");
  return position || !there ? key : path_of_layer(tree, rest);
}

}  // namespace lockstep
