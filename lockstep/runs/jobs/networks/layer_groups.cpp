#include "lockstep/runs/jobs/networks/layer_groups.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/suggest.h"
#include "lockstep/engine/nn/layer.h"

namespace lockstep {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr int deepest_group = 16;
constexpr const char* group_input = "group_input";
// Of a layer's number while its group is expanded: no field of a layer can have this name.
constexpr const char* kNumberKey = "\1number";

// The names that are visible inside one repetition of a group.
struct Scope {
  const Scope* outer = nullptr;
  std::string suffix;
  std::string before;  // the layer before this repetition
  std::map<std::string, std::string> names = {};

  std::string find(const std::string& name) const {
    if (name == group_input && outer != nullptr) return before;
    for (const Scope* scope = this; scope != nullptr; scope = scope->outer) {
      const auto found = scope->names.find(name);
      if (found != scope->names.end()) return found->second;
    }
    return name;
  }
};

class Expander {
 public:
  Expander(const FieldReader::Expression& expression, int64_t max_layers,
           const std::function<std::string(const std::string&)>& line_of)
      : expression_(expression), max_layers_(max_layers), line_of_(line_of) {}

  // Counts the layers before the expansion, so that nested repetitions cannot exhaust the memory.
  void check_size(const json& entries) {
    const double total = size_of(entries, "/network/layers", 0);
    if (total > static_cast<double>(max_layers_)) {
      throw InvalidArgument("[network] the groups give more than " + std::to_string(max_layers_) +
                            " layers");
    }
  }

  void input(const json& fields) {
    const std::string where = "network.input";
    if (!fields.is_object()) {
      throw InvalidArgument("[" + where + "] must be a table such as { height = 28, width = 28, " +
                            "channels = 1 }");
    }
    json layer = fields;
    if (layer.contains("type")) {
      throw InvalidArgument("[" + where + "] has no field `type`",
                            "write other input layers in `layers`");
    }
    layer["type"] = "image_input";
    if (!layer.contains("name")) layer["name"] = "input";
    Scope scope;
    reserve(json::array({layer}), scope);
    add(layer, where, "/network/input", scope);
  }

  void top(const json& entries) {
    Scope scope;
    run(entries, "/network/layers", scope);
  }

  const std::vector<std::string>& pointers() const { return pointers_; }

  ordered_json finish() {
    // Generated names are assigned last, so that they avoid the names in the file.
    std::map<std::string, int64_t> numbers;
    for (ordered_json& layer : layers_) {
      if (!layer["name"].get_ref<const std::string&>().empty()) continue;
      const auto& type = layer["type"].get_ref<const std::string&>();
      std::string name;
      do name = type + "_" + std::to_string(++numbers[type]);
      while (taken_.contains(name));
      renamed_[layer[kNumberKey].get<int64_t>()] = name;
      layer["name"] = name;
    }
    ordered_json list = ordered_json::array();
    for (ordered_json& layer : layers_) {
      layer.erase(kNumberKey);
      if (layer.contains("inputs")) {
        for (ordered_json& input : layer["inputs"]) input = settle(input.get<std::string>());
      }
      list.push_back(std::move(layer));
    }
    return list;
  }

 private:
  [[noreturn]] void refuse(const std::string& where, const std::string& pointer,
                           const std::string& what, const std::string& hint = {}) const {
    throw InvalidArgument("[" + location(where, pointer) + "] " + what, hint);
  }

  std::string location(const std::string& where, const std::string& pointer) const {
    const std::string line = line_of_(pointer);
    return line.empty() ? where : line + ", " + where;
  }

  static std::string where_of(const std::string& pointer) {
    // "/network/layers/3/layers/0" -> "network, layer 4.1"
    std::string where = "network, layer ";
    bool first = true;
    for (size_t i = 0; i < pointer.size();) {
      const size_t end = std::min(pointer.find('/', i + 1), pointer.size());
      const std::string part = pointer.substr(i + 1, end - i - 1);
      if (!part.empty() && part.find_first_not_of("0123456789") == std::string::npos) {
        where += (first ? "" : ".") + std::to_string(std::stoll(part) + 1);
        first = false;
      }
      i = end;
    }
    return where;
  }

  int64_t count_of(const json& group, const std::string& pointer) {
    const auto cached = counts_.find(pointer);
    if (cached != counts_.end()) return cached->second;
    const std::string where = location(where_of(pointer), pointer);
    int64_t count = 1;
    FieldReader reader(group, where, expression_, {"layers"});
    reader.integer("repeat", count, "", {.min = 0, .max = max_layers_});
    reader.finish();
    if (!group.contains("layers")) {
      refuse(where_of(pointer), pointer, "a group needs a list `layers`");
    }
    return counts_[pointer] = count;
  }

  static bool is_group(const json& entry) {
    return entry.is_object() && !entry.contains("type") &&
           (entry.contains("repeat") || entry.contains("layers"));
  }

  double size_of(const json& entries, const std::string& pointer, int depth) {
    if (!entries.is_array()) {
      refuse(pointer == "/network/layers" ? "network" : where_of(pointer), pointer,
             "layers must be a list of tables");
    }
    if (depth > deepest_group) {
      refuse(where_of(pointer), pointer,
             "groups are nested more than " + std::to_string(deepest_group) + " deep");
    }
    double total = 0;
    for (size_t i = 0; i < entries.size(); ++i) {
      const std::string here = pointer + "/" + std::to_string(i);
      if (!is_group(entries[i])) {
        total += 1;
        continue;
      }
      const auto count = static_cast<double>(count_of(entries[i], here));
      const double inside = size_of(entries[i]["layers"], here + "/layers", depth + 1);
      // An empty group counts too, because repeating it takes time.
      total += count * std::max(inside, 1.0);
    }
    return total;
  }

  // Registers the names that are given directly in this list. All its layers may refer to them,
  // before and after the named layer.
  void reserve(const json& entries, Scope& scope) const {
    for (const json& entry : entries) {
      if (!entry.is_object() || is_group(entry) || !entry.contains("name")) continue;
      if (!entry["name"].is_string()) continue;  // add() refuses it later
      const auto& name = entry["name"].get_ref<const std::string&>();
      scope.names[name] = name + scope.suffix;
    }
  }

  void run(const json& entries, const std::string& pointer, Scope& scope) {
    reserve(entries, scope);
    for (size_t i = 0; i < entries.size(); ++i) {
      const std::string here = pointer + "/" + std::to_string(i);
      const json& entry = entries[i];
      if (!is_group(entry)) {
        add(entry, where_of(here), here, scope);
        continue;
      }
      const int64_t count = count_of(entry, here);
      for (int64_t repetition = 1; repetition <= count; ++repetition) {
        Scope inner{&scope, scope.suffix, last_};
        if (count > 1) inner.suffix += "_" + std::to_string(repetition);
        run(entry["layers"], here + "/layers", inner);
        if (repetition == count) {
          for (const auto& [name, full] : inner.names) scope.names.try_emplace(name, full);
        }
      }
    }
  }

  std::string text_of(const json& entry, const char* key, const std::string& where,
                      const std::string& pointer) const {
    if (!entry.contains(key)) return {};
    if (!entry[key].is_string()) refuse(where, pointer, std::string(key) + " must be text");
    return entry[key].get<std::string>();
  }

  // All fields of the layer, read once even if it is repeated.
  const ordered_json& fields_of(const json& entry, const std::string& where,
                                const std::string& pointer) {
    const auto cached = fields_.find(pointer);
    if (cached != fields_.end()) return cached->second;
    ordered_json fields;
    if (text_of(entry, "type", where, pointer) == "shared") {
      for (const auto& [key, unused] : entry.items()) {
        const std::vector<std::string> known{"type", "name", "inputs", "layer"};
        if (std::find(known.begin(), known.end(), key) == known.end()) {
          refuse(where + " (shared)", pointer, "unknown field '" + key + "'", suggest(key, known));
        }
      }
      fields["type"] = "shared";
      if (text_of(entry, "layer", where, pointer).empty()) {
        refuse(where + " (shared)", pointer, "layer is missing (the layer that is used again)");
      }
    } else {
      fields = write_layer(
          *read_layer(entry, location(where, pointer), expression_, {"name", "inputs"}));
    }
    return fields_[pointer] = std::move(fields);
  }

  void add(const json& entry, const std::string& where, const std::string& pointer, Scope& scope) {
    if (!entry.is_object()) refuse(where, pointer, "must be a table, received " + entry.dump());
    const ordered_json& fields = fields_of(entry, where, pointer);
    const std::string given = text_of(entry, "name", where, pointer);
    if (given == group_input) refuse(where, pointer, "group_input is a reserved name");
    const auto number = static_cast<int64_t>(layers_.size());
    ordered_json layer;
    layer["name"] = given.empty() ? "" : given + scope.suffix;
    if (!given.empty() && !taken_.insert(layer["name"]).second) {
      refuse(where, pointer, "two layers have the name `" + layer["name"].get<std::string>() + "`");
    }
    layer.update(fields);
    if (fields["type"] == "shared") layer["layer"] = scope.find(entry["layer"]);
    if (entry.contains("inputs")) {
      ordered_json inputs = ordered_json::array();
      const json list =
          entry["inputs"].is_string() ? json::array({entry["inputs"]}) : entry["inputs"];
      if (!list.is_array()) refuse(where, pointer, "inputs must be names of layers");
      for (const json& input : list) {
        if (!input.is_string()) refuse(where, pointer, "inputs must be names of layers");
        const auto& reference = input.get_ref<const std::string&>();
        inputs.push_back(scope.find(reference));
        if (inputs.back() == "") {
          refuse(where, pointer, "there is no layer before the first `" + reference + "`");
        }
      }
      layer["inputs"] = std::move(inputs);
    }
    layer[kNumberKey] = number;
    // Until all names are known, a layer without a name is referred to by its number.
    last_ = given.empty() ? std::string(1, '\0') + std::to_string(number)
                          : layer["name"].get<std::string>();
    layers_.push_back(std::move(layer));
    pointers_.push_back(pointer);
  }

  std::string settle(const std::string& reference) const {
    if (reference.empty() || reference.front() != '\0') return reference;
    return renamed_.at(std::stoll(reference.substr(1)));
  }

  const FieldReader::Expression& expression_;
  int64_t max_layers_;
  const std::function<std::string(const std::string&)>& line_of_;
  std::vector<ordered_json> layers_;
  std::vector<std::string> pointers_;  // of the layers
  std::set<std::string> taken_;
  std::map<std::string, int64_t> counts_;       // by pointer
  std::map<std::string, ordered_json> fields_;  // by pointer
  std::map<int64_t, std::string> renamed_;
  std::string last_;
};

}  // namespace

ordered_json expand_layers(const json& network, const FieldReader::Expression& expression,
                           int64_t max_layers,
                           const std::function<std::string(const std::string&)>& line_of,
                           std::vector<std::string>* pointers) {
  Expander expander(expression, max_layers, line_of);
  if (!network.contains("layers")) {
    throw InvalidArgument("[network] layers is missing (the list of layers)");
  }
  expander.check_size(network["layers"]);
  if (network.contains("input")) expander.input(network["input"]);
  expander.top(network["layers"]);
  if (pointers != nullptr) *pointers = expander.pointers();
  return expander.finish();
}

}  // namespace lockstep
