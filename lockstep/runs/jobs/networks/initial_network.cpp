#include "lockstep/runs/jobs/networks/initial_network.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

#include "lockstep/base/counted.h"
#include "lockstep/base/error.h"
#include "lockstep/base/os/file.h"
#include "lockstep/base/pattern.h"
#include "lockstep/base/suggest.h"
#include "lockstep/base/text.h"
#include "lockstep/engine/formats/model.h"
#include "lockstep/storage/s3_files.h"

namespace lockstep {
namespace {

using nlohmann::json;

std::string name_of(const json& layer) { return layer["name"].get<std::string>(); }

// The layer of a parameter: "conv1" of "conv1.weights".
std::string layer_of(const std::string& value) { return value.substr(0, value.rfind('.')); }

std::set<std::string> layers_with_parameters(const Network& network) {
  std::set<std::string> layers;
  for (const Parameter& parameter : network.parameters()) layers.insert(layer_of(parameter.name));
  return layers;
}

std::vector<std::string> names_of(const json& layers) {
  std::vector<std::string> names;
  for (const json& layer : layers) names.push_back(name_of(layer));
  return names;
}

// The number of the first layer that is replaced.
size_t first_replaced(const json& layers, const Network& model, const json& table) {
  if (table.contains("replace_from")) {
    const std::vector<std::string> names = names_of(layers);
    const auto wanted = table["replace_from"].get<std::string>();
    const auto found = std::ranges::find(names, wanted);
    if (found != names.end()) return static_cast<size_t>(found - names.begin());
    throw InvalidArgument("[network] replace_from: the model has no layer `" + wanted + "`",
                          suggest(wanted, names));
  }
  const std::set<std::string> trained = layers_with_parameters(model);
  for (size_t i = layers.size(); i-- > 0;) {
    if (trained.contains(name_of(layers[i]))) return i;
  }
  throw InvalidArgument("[network] the model has no layer with parameters that could be replaced",
                        "name the first one: replace_from");
}

// The names that a list of layers and groups gives.
void collect_names(const json& layers, std::set<std::string>& names) {
  if (!layers.is_array()) return;
  for (const json& layer : layers) {
    if (!layer.is_object()) continue;
    if (layer.contains("name") && layer["name"].is_string()) {
      names.insert(layer["name"].get<std::string>());
    }
    if (layer.contains("layers")) collect_names(layer["layers"], names);
  }
}

// Values are taken by name, so a new layer must not have the name of one before.
void rename_new(json& added, const json& given, const std::vector<std::string>& before) {
  std::set<std::string> chosen;
  collect_names(given, chosen);
  std::map<std::string, std::string> renamed;
  for (json& layer : added) {
    const std::string name = name_of(layer);
    if (std::ranges::find(before, name) == before.end()) continue;
    if (chosen.contains(name)) {
      throw InvalidArgument("[network] replace: the model has a layer `" + name + "`, too",
                            "give the new one another name, because values are taken by name");
    }
    renamed[name] = name + "_new";
    layer["name"] = name + "_new";
  }
  for (json& layer : added) {
    if (!layer.contains("inputs")) continue;
    for (json& input : layer["inputs"]) {
      const auto found = renamed.find(input.get<std::string>());
      if (found != renamed.end()) input = found->second;
    }
  }
}

// Calls `change` for each layer that a pattern of `field` matches.
void for_matches(json& layers, const std::string& pattern, const char* field, const char* what,
                 const std::function<bool(json& layer)>& change) {
  bool any = false;
  for (json& layer : layers) {
    if (matches_pattern(name_of(layer), pattern)) any |= change(layer);
  }
  if (any) return;
  throw InvalidArgument(
      "[network] " + std::string(field) + ": no " + what + " has a name like `" + pattern + "`",
      suggest(pattern, names_of(layers)));
}

// Changes the factors of all parameters of a layer: `learning_rate_factor`, or
// `weights_learning_rate_factor` and others. Returns whether it has some.
bool change_factors(json& layer, const std::function<double(double)>& change) {
  bool any = false;
  for (auto& [field, value] : layer.items()) {
    if (!field.ends_with("learning_rate_factor") || !value.is_number()) continue;
    value = change(value.get<double>());
    any = true;
  }
  return any;
}

// `factors`: numbers by names or patterns of layers.
void set_factors(json& layers, const json& factors) {
  const auto is_pattern = [](const std::string& text) {
    return text.find_first_of("*?") != std::string::npos;
  };
  for (const auto& item : factors.items()) {
    if (item.value().is_number() && item.value().get<double>() >= 0) continue;
    throw InvalidArgument("[network] learning_rate_factors: `" + item.key() +
                          "` must be a number that is not negative");
  }
  std::map<std::string, std::string> pattern_of_layer;
  // The text of a name after those of patterns, because it wins.
  for (const bool names : {false, true}) {
    for (const auto& item : factors.items()) {
      const std::string& text = item.key();
      const json& factor = item.value();
      if (is_pattern(text) == names) continue;
      for_matches(layers, text, "learning_rate_factors", "layer with parameters", [&](json& layer) {
        const std::string name = name_of(layer);
        if (!change_factors(layer, [&](double) { return factor.get<double>(); })) return false;
        if (names || factors.contains(name)) return true;
        const auto [other, first] = pattern_of_layer.emplace(name, text);
        if (!first && factors[other->second] != factor) {
          throw InvalidArgument("[network] learning_rate_factors: the layer `" + name +
                                    "` has two factors, " + factors[other->second].dump() +
                                    " by `" + other->second + "` and " + factor.dump() + " by `" +
                                    text + "`",
                                "give the layer's name its own factor, which then applies");
        }
        return true;
      });
    }
  }
}

// ---- Names of PyTorch ----

// The parts of a name: "layer1.0.conv1" and "weight".
struct TorchName {
  std::string module, value;
};
TorchName torch_name(const std::string& name) {
  const size_t dot = name.rfind('.');
  if (dot == std::string::npos) return {"", name};
  return {name.substr(0, dot), name.substr(dot + 1)};
}

bool is_counter(const NamedTensor& tensor) {
  return torch_name(tensor.name).value == "num_batches_tracked";
}

// Whether the names are those of a state_dict().
bool are_of_torch(const std::vector<NamedTensor>& values) {
  return std::ranges::any_of(values, [](const NamedTensor& tensor) {
    const std::string value = torch_name(tensor.name).value;
    return value == "weight" || value == "running_mean";
  });
}

// Where a module of torchvision's ResNet comes, in the order of its computation; nothing for
// others.
std::optional<std::array<int, 3>> position_in_resnet(const std::string& module) {
  static const std::map<std::string, int> in_block{
      {"conv1", 0}, {"bn1", 1}, {"conv2", 2},        {"bn2", 3},
      {"conv3", 4}, {"bn3", 5}, {"downsample.0", 6}, {"downsample.1", 7}};
  if (module == "conv1" || module == "bn1") return {{0, 0, module == "bn1" ? 1 : 0}};
  if (module == "fc") return {{9, 0, 0}};
  // "layer2.0.conv1": stage, block and part.
  constexpr std::string_view kStage = "layer";
  const size_t dot = module.find('.', kStage.size());
  if (!module.starts_with(kStage) || dot != kStage.size() + 1) return std::nullopt;
  int stage = 0, block = 0;
  const char* const text = module.c_str();
  const char* const end = text + module.size();
  std::from_chars(text + kStage.size(), text + dot, stage);
  const auto number = std::from_chars(text + dot + 1, end, block);
  if (stage < 1 || stage > 4 || number.ec != std::errc() || number.ptr == end) return std::nullopt;
  const auto found = in_block.find(std::string(number.ptr + 1, end));
  if (*number.ptr != '.' || found == in_block.end()) return std::nullopt;
  return {{stage, block, found->second}};
}

// The modules of a ResNet in order; empty for other models.
std::vector<std::string> modules_of_resnet(const std::vector<NamedTensor>& values) {
  std::map<std::array<int, 3>, std::string> ordered;
  for (const NamedTensor& tensor : values) {
    const std::string module = torch_name(tensor.name).module;
    const auto position = position_in_resnet(module);
    if (!position) return {};
    ordered.emplace(*position, module);
  }
  std::vector<std::string> modules;
  for (const auto& [position, module] : ordered) modules.push_back(module);
  return modules;
}

// The parts of a module's name, numbers as such, so that "features.10" follows "features.2"; the
// classifier is last.
std::vector<std::pair<int, std::string>> position_by_numbers(const std::string& module) {
  std::vector<std::pair<int, std::string>> position;
  for (size_t begin = 0; begin <= module.size();) {
    const size_t dot = std::min(module.find('.', begin), module.size());
    const std::string part = module.substr(begin, dot - begin);
    int number = 0;
    const auto read = std::from_chars(part.data(), part.data() + part.size(), number);
    const bool is_number = read.ec == std::errc() && read.ptr == part.data() + part.size();
    if (begin == 0) number = part == "classifier" ? 1 : 0;
    position.emplace_back(number, is_number ? "" : part);
    begin = dot + 1;
  }
  return position;
}

// The modules of torchvision's MobileNetV2, EfficientNet or ConvNeXt in order; empty for others.
std::vector<std::string> modules_of_features(const std::vector<NamedTensor>& values) {
  std::map<std::vector<std::pair<int, std::string>>, std::string> ordered;
  bool features = false, classifier = false;
  for (const NamedTensor& tensor : values) {
    const std::string module = torch_name(tensor.name).module;
    features |= module.starts_with("features.");
    classifier |= module.starts_with("classifier.");
    if (!module.starts_with("features.") && !module.starts_with("classifier.")) return {};
    ordered.emplace(position_by_numbers(module), module);
  }
  std::vector<std::string> modules;
  if (!features || !classifier) return modules;
  for (const auto& [position, module] : ordered) modules.push_back(module);
  return modules;
}

// torchvision has two modules for squeeze and excitation, which are one layer here, and a layer
// scale is a tensor of a block, but a layer here.
void name_parts_as_layers(std::vector<NamedTensor>& values) {
  for (NamedTensor& tensor : values) {
    const auto [module, value] = torch_name(tensor.name);
    if (value == "layer_scale") tensor.name += ".weight";
    for (const auto& [torch, own] : {std::pair{".fc1", "reduce_"}, std::pair{".fc2", "expand_"}}) {
      if (!module.starts_with("features.") || !module.ends_with(torch)) continue;
      tensor.name =
          module.substr(0, module.size() - 4) + "." + own + (value == "weight" ? "weights" : value);
    }
  }
}

struct TorchModules {
  std::string whose;               // network of torchvision
  std::vector<std::string> names;  // in order; none: they are not matched with the layers
};

// The modules in order, if the network has as many layers with values, under other names. Then the
// parts of a layer are named as such.
TorchModules modules_in_order(std::vector<NamedTensor>& values,
                              const std::vector<std::string>& layers) {
  TorchModules resnet{"ResNet", modules_of_resnet(values)};
  if (!resnet.names.empty()) return resnet.names.size() == layers.size() ? resnet : TorchModules();
  std::vector<NamedTensor> named = values;
  name_parts_as_layers(named);
  TorchModules other{"network", modules_of_features(named)};
  const auto is_layer = [&](const std::string& module) {
    return std::ranges::find(layers, module) != layers.end();
  };
  if (other.names.size() != layers.size() || std::ranges::any_of(other.names, is_layer)) return {};
  values = std::move(named);
  return other;
}

std::vector<int64_t> without_ones(const Shape& shape) {
  std::vector<int64_t> dims;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    if (shape[axis] != 1) dims.push_back(shape[axis]);
  }
  return dims;
}

// Linear layers may be convolutions of 1 x 1 here, and the other way round: such tensors get the
// shapes of the network's values.
void reshape_to_values(const Network& network, std::vector<NamedTensor>& values) {
  std::map<std::string, Shape> shapes;
  for (const auto& [name, shape] : network.value_shapes()) shapes.emplace(name, shape);
  for (NamedTensor& tensor : values) {
    const auto found = shapes.find(tensor.name);
    if (found == shapes.end() || tensor.tensor.shape() == found->second) continue;
    if (without_ones(tensor.tensor.shape()) != without_ones(found->second)) continue;
    tensor.tensor = tensor.tensor.reshaped(found->second);
  }
}

// The layers of a network that have values, in order, without its inputs.
std::vector<std::string> layers_with_values(const Network& network) {
  std::set<std::string> with;
  for (const auto& [name, shape] : network.value_shapes()) with.insert(layer_of(name));
  std::vector<std::string> layers;
  for (const LayerNode& node : network.layers()) {
    if (!node.layer->is_input() && with.contains(node.name)) layers.push_back(node.name);
  }
  return layers;
}

// "weight" of a convolution is `weights`, that of batch normalization `scale`.
std::string own_value(const std::string& value, bool normalizes) {
  if (value == "weight") return normalizes ? "scale" : "weights";
  if (value == "bias") return normalizes ? "shift" : "bias";
  if (value == "running_mean") return "mean";
  if (value == "running_var") return "variance";
  return value;
}

// Pixels as torchvision normalizes them: mean and deviation of ImageNet, of pixels from 0 to 1.
void add_imagenet_statistics(const Network& network, std::vector<NamedTensor>& values) {
  constexpr std::array<float, 3> means{0.485f, 0.456f, 0.406f}, deviations{0.229f, 0.224f, 0.225f};
  for (const LayerNode& node : network.layers()) {
    if (!node.layer->is_input() || node.layer->input_shape().rank() != 3 ||
        node.layer->input_shape()[0] != 3) {
      continue;
    }
    std::array<float, 3> offset{}, factor{};
    for (size_t c = 0; c < 3; ++c) {
      offset[c] = 255 * means[c];
      factor[c] = 1 / (255 * deviations[c]);
    }
    const auto tensor = [](const std::array<float, 3>& of) {
      return Tensor::from(std::span<const float>(of), Shape{3});
    };
    values.push_back({node.name + ".offset", tensor(offset)});
    values.push_back({node.name + ".factor", tensor(factor)});
  }
}

std::vector<NamedTensor> in_own_names(const Network& network, std::vector<NamedTensor> values,
                                      std::string& how) {
  std::erase_if(values, is_counter);
  const std::vector<std::string> layers = layers_with_values(network);
  const auto [whose, modules] = modules_in_order(values, layers);
  std::map<std::string, std::string> layer_of_module;
  if (!modules.empty()) {
    for (size_t i = 0; i < modules.size(); ++i) layer_of_module[modules[i]] = layers[i];
    how = "the tensors of torchvision's " + whose +
          " are matched with the layers in their order, from `" + modules.front() + "` for `" +
          layers.front() + "` to `" + modules.back() + "` for `" + layers.back() + "`";
  } else {
    how = "the names of PyTorch's tensors are those of layers";
  }
  std::set<std::string> normalizing;
  for (const NamedTensor& tensor : values) {
    const auto [module, value] = torch_name(tensor.name);
    if (value == "running_mean" || module.ends_with(".layer_scale") ||
        (value == "weight" && tensor.tensor.shape().rank() == 1)) {
      normalizing.insert(module);
    }
  }
  for (NamedTensor& tensor : values) {
    const auto [module, value] = torch_name(tensor.name);
    const auto found = layer_of_module.find(module);
    const std::string layer = found == layer_of_module.end() ? module : found->second;
    tensor.name = layer + "." + own_value(value, normalizing.contains(module));
  }
  reshape_to_values(network, values);
  if (!layer_of_module.empty()) {
    add_imagenet_statistics(network, values);
    how += "; the input has the means and deviations of ImageNet";
  }
  return values;
}

}  // namespace

Network model_network(const std::string& path) {
  FileSystem& files = storage::files_of(path);
  const std::string file = files.is_folder(path) ? join_path(path, run_model_name) : path;
  std::vector<std::byte> bytes = files.read(file);
  if (!describes_network(read_safetensors(bytes, file))) {
    throw DataError("[network] from: " + file + " has values, but no description of a network",
                    "describe it with `layers`; `lockstep architecture` prints known ones");
  }
  return decode_model(std::move(bytes), file).network;
}

json changed_network(const Network& model, const json& table, const ExpandLayers& expand) {
  json network = json(model.to_json());
  json& layers = network["layers"];
  const std::vector<std::string> before = names_of(layers);
  if (table.contains("input")) {
    if (!table["input"].is_object()) throw InvalidArgument("[network] input must be a table");
    for (const auto& [field, value] : table["input"].items()) layers.at(0)[field] = value;
  }
  if (table.contains("replace_from") && !table.contains("replace")) {
    throw InvalidArgument("[network] replace_from is given, but no layers: replace");
  }
  if (table.contains("replace")) {
    const size_t first = first_replaced(layers, model, table);
    if (first == 0) throw InvalidArgument("[network] replace_from: the input cannot be replaced");
    json added = json(expand(table["replace"], "replace"));
    rename_new(added, table["replace"], before);
    layers.erase(layers.begin() + static_cast<std::ptrdiff_t>(first), layers.end());
    for (json& layer : added) layers.push_back(std::move(layer));
  }
  if (table.contains("loss")) network["loss"] = table["loss"];
  return network;
}

void change_layers(json& layers, const json& table) {
  if (table.contains("learning_rate_factors")) {
    const json& factors = table["learning_rate_factors"];
    if (!factors.is_object()) {
      throw InvalidArgument("[network] learning_rate_factors must be a table",
                            "such as { \"stage1*\" = 0.1 }");
    }
    set_factors(layers, factors);
  }
  if (table.contains("layer_decay")) {
    const json& decay = table["layer_decay"];
    if (!decay.is_number() || !(decay.get<double>() > 0) || decay.get<double>() > 1) {
      throw InvalidArgument("[network] layer_decay must be a number above 0, at most 1");
    }
    double factor = 1;
    for (size_t i = layers.size(); i-- > 0;) {
      const bool any = change_factors(layers[i], [&](double before) { return before * factor; });
      if (any) factor *= decay.get<double>();
    }
  }
  if (table.contains("keep_statistics")) {
    const json& given = table["keep_statistics"];
    const json patterns = given.is_array() ? given : json::array({given});
    for (const json& pattern : patterns) {
      if (!pattern.is_string()) {
        throw InvalidArgument("[network] keep_statistics must be names or patterns of layers");
      }
      for_matches(layers, pattern.get<std::string>(), "keep_statistics",
                  "batch normalization or input", [](json& layer) {
                    if (layer.contains("statistics")) {
                      layer["statistics"] = "moving";
                    } else if (layer.value("normalization", "none") != "none") {
                      layer["normalization"] = "kept";
                    } else {
                      return false;
                    }
                    return true;
                  });
    }
  }
}

std::string TakenValues::describe(const std::string& path) const {
  const auto some = [](const std::vector<std::string>& names) { return list_of_some(names, 6); };
  std::string text = "the network begins with " + counted(taken, "value") + " of " + path;
  if (!made.empty()) text += "; new: " + some(made);
  if (!unused.empty()) text += "; not taken: " + some(unused);
  if (!translated.empty()) text += "; " + translated;
  return text;
}

TakenValues take_values(Network& network, const std::vector<NamedTensor>& values,
                        const std::string& path, bool check_alone) {
  TakenValues result;
  const bool torch = are_of_torch(values);
  const std::vector<NamedTensor> named =
      torch ? in_own_names(network, values, result.translated) : values;
  std::map<std::string, Tensor> given;
  for (const NamedTensor& value : named) given.emplace(value.name, value.tensor);
  std::set<std::string> fitting;
  for (const auto& [name, shape] : network.value_shapes()) {
    const auto found = given.find(name);
    const bool there = found != given.end();
    if (there && found->second.shape() == shape && found->second.dtype() == DType::f32) {
      fitting.insert(name);
      continue;
    }
    result.names_made.push_back(name);
    result.made.push_back(name + " (" + shape.to_string() +
                          (there ? ", there " + found->second.shape().to_string() : "") + ")");
  }
  for (const auto& [name, tensor] : given) {
    if (!fitting.contains(name)) result.unused.push_back(name);
  }
  if (fitting.empty()) {
    throw InvalidArgument("[network] from: no value of " + path + " fits the network, which has " +
                              (result.made.empty() ? "none" : result.made.front()),
                          "values are taken by name and shape; `lockstep summary` shows both");
  }
  result.taken = std::ssize(fitting);
  if (check_alone) return result;
  for (const Parameter& p : network.parameters()) {
    if (fitting.contains(p.name)) p.value.copy_from(given.at(p.name));
  }
  for (const NetworkState& s : network.state()) {
    if (fitting.contains(s.name)) s.value.copy_from(given.at(s.name));
  }
  return result;
}

}  // namespace lockstep
