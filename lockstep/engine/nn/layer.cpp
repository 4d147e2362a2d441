#include "lockstep/engine/nn/layer.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/suggest.h"
#include "lockstep/engine/nn/layers/registry.h"

namespace lockstep {
namespace {

bool by_type(const LayerInfo& a, const LayerInfo& b) { return a.type < b.type; }

std::vector<LayerInfo>& registered() {
  static std::vector<LayerInfo> all = [] {
    std::vector<LayerInfo> known = layers::all();
    std::sort(known.begin(), known.end(), by_type);
    return known;
  }();
  return all;
}

}  // namespace

const std::vector<LayerInfo>& layer_registry() { return registered(); }

void add_to_layer_registry(LayerInfo info) {
  auto& all = registered();
  const auto at = std::lower_bound(all.begin(), all.end(), info, by_type);
  // Files use the type "shared" for a layer that reuses another layer's parameters.
  if ((at != all.end() && at->type == info.type) || info.type == "shared" || info.type.empty()) {
    throw InvalidArgument("[layers] there is a layer type `" + info.type + "` already",
                          "use another name, and register it once");
  }
  all.insert(at, std::move(info));
}

LayerPtr read_layer(const nlohmann::json& object, const std::string& where,
                    const FieldReader::Expression& expression, std::vector<std::string> also) {
  if (!object.is_object() || !object.contains("type") || !object["type"].is_string()) {
    throw InvalidArgument("[" + where + "] must be a table with a `type`, received " +
                          object.dump().substr(0, 80));
  }
  const std::string type = object["type"].get<std::string>();
  std::vector<std::string> types;
  for (const auto& info : layer_registry()) {
    if (info.type == type) {
      also.emplace_back("type");
      FieldReader reader(object, where + " (" + type + ")", expression, std::move(also));
      LayerPtr layer = info.read(reader);
      reader.finish();
      return layer;
    }
    types.push_back(info.type);
  }
  throw InvalidArgument("[" + where + "] unknown layer type `" + type + "`", suggest(type, types));
}

nlohmann::ordered_json write_layer(const Layer& layer) {
  nlohmann::ordered_json object;
  object["type"] = layer.type();
  FieldWriter writer(object);
  layer.visit(writer);
  return object;
}

}  // namespace lockstep
