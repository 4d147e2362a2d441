#include "lockstep/runs/jobs/networks/network_table.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/suggest.h"
#include "lockstep/engine/nn/layers.h"
#include "lockstep/engine/nn/loss.h"
#include "lockstep/engine/nn/network.h"
#include "lockstep/runs/jobs/job_file.h"
#include "lockstep/runs/jobs/job_source.h"
#include "lockstep/runs/jobs/networks/initial_network.h"
#include "lockstep/runs/jobs/networks/layer_groups.h"

namespace lockstep {

using nlohmann::json;
using nlohmann::ordered_json;

namespace {

std::vector<std::string> names_of_fields(const std::vector<FieldInfo>& fields) {
  std::vector<std::string> names;
  for (const FieldInfo& field : fields) names.push_back(field.name);
  return names;
}

// [data] target_scaling as the last layer. A network that ends in it, such as that of a model or of
// a job that was read before, has it once.
void end_in_scaling(json& network, const std::string& how) {
  const std::string loss = network.value("loss", Network().loss());
  check_loss(loss);
  if (takes_labels(loss)) {
    throw InvalidArgument(
        "[data] target_scaling is for networks that learn numbers, but the loss takes labels: " +
            loss,
        "set [network] loss = \"mean_squared_error\" and target_columns or targets");
  }
  json& layers = network["layers"];
  const bool there =
      !layers.empty() && layers.back().value("type", "") == DenormalizationOptions::kType;
  if (!there) {
    layers.push_back({{"type", DenormalizationOptions::kType}, {"name", "target_scaling"}});
  }
  json& last = layers.back();
  if (last.value("normalization", "") != "kept") last["normalization"] = how;
}

// The table `outputs` as the last layer.
void end_in_outputs(json& network, const json& table, const FieldReader::Expression& expression) {
  if (network.contains("loss")) {
    throw InvalidArgument("[network] loss and outputs are both given",
                          "each of the outputs has a loss");
  }
  if (!table.is_array() || table.empty()) {
    throw InvalidArgument("[network] outputs must be a list of tables",
                          "such as { layer = \"age\", loss = \"mean_squared_error\" }");
  }
  json names = json::array(), losses = json::array(), weights = json::array();
  for (size_t k = 0; k < table.size(); ++k) {
    const std::string where = "network.outputs[" + std::to_string(k) + "]";
    FieldReader reader(table[k], where, expression);
    std::string layer, loss = "mean_squared_error";
    double weight = 1;
    reader.text("layer", layer, "", {});
    reader.text("loss", loss, "", {});
    reader.number("weight", weight, "", {.min = 0});
    reader.finish();
    check_loss(loss);
    if (layer.empty()) throw InvalidArgument("[network] " + where + " has no layer");
    if (std::find(names.begin(), names.end(), json(layer)) != names.end()) {
      throw InvalidArgument("[network] " + where + ": the layer `" + layer + "` is named twice",
                            "a layer has one loss; an expression can be a sum of several");
    }
    names.push_back(layer);
    losses.push_back(loss);
    weights.push_back(weight);
  }
  network["layers"].push_back({{"name", "outputs"},
                               {"type", OutputsOptions::kType},
                               {"inputs", names},
                               {"losses", losses},
                               {"weights", weights}});
  network["loss"] = "mean_squared_error";
}

}  // namespace

std::vector<FieldInfo> network_fields() {
  FieldLister lister;
  lister.fields = {
      {"input", "table", "none",
       "height, width and channels: short for a first layer image_input with the name \"input\""},
      {"layers", "list of layers and groups", "required",
       "in order; the input of each is the layer before it; with `from` those of the model"},
      {"from", "text", "none",
       "begins with the values of a model, as far as names and shapes fit: the folder of a run, a "
       "model file, or a safetensors file of PyTorch"},
      {"replace", "list of layers and groups", "none",
       "with `from`: new layers in place of the model's last ones"},
      {"replace_from", "text", "the last layer with parameters",
       "the first layer of the model that is replaced"},
      {"learning_rate_factors", "table", "none",
       "learning_rate_factor of layers by names or patterns: { \"stage1*\" = 0.1 }; a name wins "
       "over patterns, and patterns with different factors for one layer are refused"},
      {"layer_decay", "number", "1",
       "multiplies the learning_rate_factor of each layer with parameters once for each such layer "
       "after it"},
      {"keep_statistics", "list of texts", "none",
       "names or patterns of batch normalizations and inputs that keep the statistics they have"}};
  lister.fields.push_back(
      {"outputs", "list of tables", "none",
       "for several results: the `layer` of each, its `loss` (as below; mean_squared_error) and "
       "`weight` (1), in the order of their targets"});
  std::string loss = Network().loss();
  lister.text("loss", loss,
              "cross_entropy, mean_squared_error, or an expression of output and target (below)",
              {});
  return lister.fields;
}

ordered_json read_network(const JobSource& source, const FieldReader::Expression& expression,
                          const std::function<std::string(const std::string&)>& resolve,
                          const std::string& target_scaling, std::string& from) {
  const json& tree = source.tree;
  if (!tree.contains("network")) {
    throw InvalidArgument("[network] is missing", "describe it in a table [network] with `layers`");
  }
  const json& network = tree["network"];
  if (!network.is_object()) throw InvalidArgument("[network] must be a table");
  const std::vector<std::string> known = names_of_fields(network_fields());
  for (const auto& [key, unused] : network.items()) {
    if (std::find(known.begin(), known.end(), key) == known.end()) {
      throw InvalidArgument("[network] unknown field '" + key + "'", suggest(key, known));
    }
  }
  const auto expanded = [&](const json& table, const std::string& field) {
    return expand_layers(table, expression, max_job_layers, [&](std::string pointer) {
      pointer.replace(0, std::string("/network/layers").size(), "/network/" + field);
      const auto line = source.lines.find(pointer);
      return line == source.lines.end() ? std::string() : "line " + std::to_string(line->second);
    });
  };
  if (network.contains("from")) {
    if (!network["from"].is_string()) throw InvalidArgument("[network] from must be text");
    from = resolve(network["from"].get<std::string>());
  }
  json resolved;
  if (!from.empty() && !network.contains("layers")) {
    resolved =
        changed_network(model_network(from), network, [&](const json& layers, const char* field) {
          if (!layers.is_array()) {
            throw InvalidArgument("[network] " + std::string(field) + " must be a list of tables",
                                  "such as [{ type = \"fully_connected\", units = 5 }]");
          }
          return expanded(json{{"layers", layers}}, field);
        });
  } else {
    for (const char* field : {"replace", "replace_from"}) {
      if (!network.contains(field)) continue;
      throw InvalidArgument("[network] " + std::string(field) +
                            " needs the layers of a model: `from` without `layers`");
    }
    resolved["layers"] = expanded(network, "layers");
    if (network.contains("loss")) resolved["loss"] = network["loss"];
  }
  if (network.contains("outputs")) end_in_outputs(resolved, network["outputs"], expression);
  if (target_scaling != "none") end_in_scaling(resolved, target_scaling);
  change_layers(resolved["layers"], network);
  const Network built = Network::from_json(resolved);
  built.check();
  return built.to_json();
}

}  // namespace lockstep
