#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/suggest.h"
#include "lockstep/engine/nn/network_state.h"

namespace lockstep {

nlohmann::ordered_json Network::to_json() const {
  nlohmann::ordered_json layers = nlohmann::ordered_json::array();
  for (const auto& node : state_->layers) {
    nlohmann::ordered_json object;
    object["name"] = node.name;
    if (node.shares.empty()) {
      object.update(write_layer(*node.layer));
    } else {
      object["type"] = "shared";
      object["layer"] = node.shares;
    }
    if (!node.layer->is_input()) object["inputs"] = node.inputs;
    layers.push_back(std::move(object));
  }
  nlohmann::ordered_json object;
  object["layers"] = std::move(layers);
  object["loss"] = state_->loss;
  return object;
}

nlohmann::json Network::canonical_layers() const {
  nlohmann::json layers = to_json()["layers"];
  for (size_t i = 0; i < layers.size(); ++i) {
    const LayerNode& node = state_->layers[i];
    if (!node.shares.empty()) continue;
    nlohmann::ordered_json defaults = nlohmann::ordered_json::object();
    FieldWriter writer(defaults);
    node.layer->visit_defaults(writer);
    for (const auto& [field, value] : defaults.items()) {
      if (layers[i].contains(field) && layers[i][field] == nlohmann::json(value)) {
        layers[i].erase(field);
      }
    }
  }
  return layers;
}

Network Network::from_json(const nlohmann::json& object,
                           const FieldReader::Expression& expression) {
  if (!object.is_object() || !object.contains("layers") || !object["layers"].is_array()) {
    throw InvalidArgument("[network] must have a list `layers`");
  }
  Network network;
  int number = 0;
  for (const auto& entry : object["layers"]) {
    const std::string where = "network, layer " + std::to_string(++number);
    if (!entry.is_object()) throw InvalidArgument("[" + where + "] must be a table");
    const auto text = [&](const char* key) -> std::string {
      if (!entry.contains(key)) return {};
      if (!entry[key].is_string()) {
        throw InvalidArgument("[" + where + "] " + key + " must be text");
      }
      return entry[key].get<std::string>();
    };
    std::vector<std::string> inputs;
    if (entry.contains("inputs")) {
      const auto& list = entry["inputs"];
      if (list.is_string()) inputs.push_back(list.get<std::string>());
      if (!list.is_string() && !list.is_array()) {
        throw InvalidArgument("[" + where + "] inputs must be names of layers");
      }
      for (size_t i = 0; list.is_array() && i < list.size(); ++i) {
        if (!list[i].is_string()) {
          throw InvalidArgument("[" + where + "] inputs must be names of layers");
        }
        inputs.push_back(list[i].get<std::string>());
      }
    }
    const std::string name = text("name");
    if (text("type") == "shared") {
      for (const auto& [key, value] : entry.items()) {
        const std::vector<std::string> known{"type", "name", "inputs", "layer"};
        if (std::find(known.begin(), known.end(), key) == known.end()) {
          throw InvalidArgument("[" + where + " (shared)] unknown field `" + key + "`",
                                suggest(key, known));
        }
      }
      network.add_shared(text("layer"), name, inputs);
    } else {
      network.add(read_layer(entry, where, expression, {"name", "inputs"}), name, inputs);
    }
  }
  if (object.contains("loss")) {
    if (!object["loss"].is_string()) throw InvalidArgument("[network] loss must be text");
    network.set_loss(object["loss"].get<std::string>());
  }
  return network;
}

}  // namespace lockstep
