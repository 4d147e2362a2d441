#include "lockstep/engine/formats/model.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "lockstep/base/digest.h"
#include "lockstep/base/error.h"
#include "lockstep/base/json/json_text.h"
#include "lockstep/base/os/file.h"
#include "lockstep/base/text.h"

namespace lockstep {
namespace {

using nlohmann::json;

constexpr const char* network_key = "lockstep.network";
constexpr const char* classes_key = "lockstep.classes";
constexpr const char* columns_key = "lockstep.columns";
constexpr const char* preparation_key = "lockstep.preparation";
constexpr const char* checkpoint_key = "lockstep.checkpoint";
constexpr const char* format_key = "lockstep.format";
constexpr const char* digest_key = "lockstep.digest";
constexpr const char* format = "1";
constexpr int deepest_network = 8;  // nesting of the network's JSON
constexpr size_t most_layers = 100'000;
constexpr int64_t most_window = int64_t{1} << 31;  // tokens
constexpr int64_t most_side = int64_t{1} << 14;    // pixels

[[noreturn]] void damaged_model(const std::string& path, const std::string& what,
                                const std::string& hint = {}) {
  throw DataError("[model] " + path + ": " + what, hint);
}

bool is_digest(const std::string& text) {
  return text.size() == 32 && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

bool is_count(const json& value, int64_t most) {
  return value.is_number_integer() && value > 0 && value <= most;
}

// A file whose digest key is damaged must not pass as a file without a digest.
void refuse_stray_metadata(const std::map<std::string, std::string>& metadata,
                           const std::string& path) {
  for (const auto& [key, text] : metadata) {
    const bool known = key == network_key || key == classes_key || key == columns_key ||
                       key == preparation_key || key == format_key || key == digest_key;
    if (known || !(key.starts_with("lockstep.") || is_digest(text))) continue;
    damaged_model(path,
                  "its metadata has a field " +
                      json(key.substr(0, 40)).dump(-1, ' ', true, json::error_handler_t::replace) +
                      " that this version does not know",
                  "the file is damaged, or a newer Lockstep wrote it");
  }
}

json parse_metadata(const std::map<std::string, std::string>& metadata, const char* key,
                    const std::string& path) {
  const auto found = metadata.find(key);
  if (found == metadata.end()) {
    damaged_model(path, std::string("is not a Lockstep model: its metadata has no ") + key);
  }
  try {
    return parse_json<json>(found->second, {.deepest = deepest_network});
  } catch (const JsonError& error) {
    damaged_model(path, std::string(key) + " in its metadata is damaged: " + error.what());
  }
}

json to_json(const Preparation& p) {
  json fields = json::object();
  const Preparation usual;
  if (p.resize) fields["images"] = "resize";
  if (p.crop) fields["images"] = "crop";
  if (p.resize_shorter > 0) fields["resize_shorter"] = p.resize_shorter;
  if (p.scaled) fields["scaled_decoding"] = true;
  if (p.upright) fields["orientation"] = "exif";
  if (p.labels != usual.labels) fields["labels"] = p.labels;
  if (!p.header) fields["header"] = false;
  if (!p.tokens.empty()) fields["tokens"] = p.tokens;
  if (p.window_length > 0) fields["window_length"] = p.window_length;
  if (!p.targets.empty()) fields["targets"] = p.targets;
  if (!p.pixel_values.empty()) fields["pixel_values"] = p.pixel_values;
  if (!p.ignored_value.empty()) fields["ignored_value"] = p.ignored_value;
  if (!p.categories.empty()) fields["categories"] = p.categories;
  if (!p.ignored_columns.empty()) fields["ignored_columns"] = p.ignored_columns;
  if (p.missing != usual.missing) fields["missing"] = p.missing;
  if (!p.text_column.empty()) fields["text_column"] = p.text_column;
  if (!p.label_column.empty()) fields["label_column"] = p.label_column;
  return fields;
}

bool is_list_of_texts(const json& value) {
  return value.is_array() &&
         std::ranges::all_of(value, [](const json& entry) { return entry.is_string(); });
}

// One number of a byte, or three.
bool is_pixel_value(const json& value) {
  constexpr int64_t most = 255;
  return value.is_array() && (value.size() == 1 || value.size() == 3) &&
         std::ranges::all_of(value, [](const json& part) {
           return part.is_number_integer() && part >= 0 && part <= most;
         });
}

bool is_list_of_pixel_values(const json& value) {
  return value.is_array() && !value.empty() && std::ranges::all_of(value, is_pixel_value);
}

Preparation preparation_of(const json& fields, const std::string& path) {
  Preparation p;
  if (!fields.is_object()) damaged_model(path, "its preparation is not an object");
  for (const auto& [key, value] : fields.items()) {
    if (key == "images" && (value == "resize" || value == "crop")) {
      (value == "resize" ? p.resize : p.crop) = true;
    } else if (key == "scaled_decoding" && value == true) {
      p.scaled = true;
    } else if (key == "orientation" && value == "exif") {
      p.upright = true;
    } else if (key == "labels" && (value == "nearest" || value == "path")) {
      p.labels = value.get<std::string>();
    } else if (key == "header" && value == false) {
      p.header = false;
    } else if (key == "tokens" && (value == "bytes" || value == "characters" || value == "words" ||
                                   value == "numbers")) {
      p.tokens = value.get<std::string>();
    } else if (key == "targets" &&
               (value == "columns" || value == "next_step" || value == "inputs")) {
      p.targets = value.get<std::string>();
    } else if (key == "missing" && (value == "mean" || value == "flag")) {
      p.missing = value.get<std::string>();
    } else if ((key == "categories" || key == "ignored_columns") && is_list_of_texts(value)) {
      (key == "categories" ? p.categories : p.ignored_columns) =
          value.get<std::vector<std::string>>();
    } else if (key == "pixel_values" && is_list_of_pixel_values(value)) {
      p.pixel_values = value.get<std::vector<std::vector<int64_t>>>();
    } else if (key == "ignored_value" && is_pixel_value(value)) {
      p.ignored_value = value.get<std::vector<int64_t>>();
    } else if (key == "resize_shorter" && is_count(value, most_side)) {
      p.resize_shorter = value.get<int64_t>();
    } else if (key == "window_length" && is_count(value, most_window)) {
      p.window_length = value.get<int64_t>();
    } else if ((key == "text_column" || key == "label_column") && value.is_string() &&
               !value.get_ref<const std::string&>().empty()) {
      (key == "text_column" ? p.text_column : p.label_column) = value.get<std::string>();
    } else {
      damaged_model(path,
                    "its preparation has an entry " + key.substr(0, 40) + " = " +
                        value.dump(-1, ' ', true, json::error_handler_t::replace).substr(0, 40) +
                        " that this version does not know",
                    "the file is damaged, or a newer Lockstep wrote it");
    }
  }
  return p;
}

Network read_network(const json& description, const SafetensorsFile& file,
                     const std::string& path) {
  if (description.is_object() && description.contains("layers") &&
      description["layers"].size() > most_layers) {
    damaged_model(path, "describes more than " + std::to_string(most_layers) + " layers");
  }
  Network network = Network::from_json(description);
  network.check();
  // Compares all shapes before memory is allocated, because a damaged description may contain any
  // size.
  std::set<std::string> wanted;
  for (const auto& [name, shape] : network.value_shapes()) {
    wanted.insert(name);
    const Tensor& tensor = file.at(name, path);
    if (tensor.dtype() != DType::f32 || !(tensor.shape() == shape)) {
      damaged_model(path, "tensor " + name + " is " + tensor.spec().to_string() +
                              ", its layer needs " + shape.to_string() + " f32");
    }
  }
  for (const NamedTensor& tensor : file.tensors) {
    if (!wanted.contains(tensor.name))
      damaged_model(path, "no layer has the tensor " + tensor.name);
  }
  network.initialize(0);
  const auto fill = [&](const std::string& name, const Tensor& value) {
    const Tensor& from = file.at(name, path);
    value.copy_from(from);
  };
  for (const Parameter& parameter : network.parameters()) fill(parameter.name, parameter.value);
  for (const NetworkState& state : network.state()) fill(state.name, state.value);
  return network;
}

}  // namespace

std::vector<std::byte> encode_model(const Network& network, const std::vector<std::string>& classes,
                                    const Preparation& preparation) {
  if (!network.initialized()) {
    throw InvalidArgument("[save_model] the network has no values yet", "initialize it first");
  }
  for (const std::string& name : classes) {
    if (is_utf8(name)) continue;
    throw InvalidArgument("[save_model] the class name `" + printable(name) + "` is not UTF-8",
                          "rename the class");
  }
  std::vector<NamedTensor> tensors;
  for (const Parameter& parameter : network.parameters()) {
    if (!parameter.value.defined()) {
      throw InvalidArgument("[save_model] the network has sizes, but no values",
                            "initialize it first");
    }
    tensors.push_back({parameter.name, parameter.value});
  }
  for (const NetworkState& state : network.state()) tensors.push_back({state.name, state.value});
  SafetensorsFile file{std::move(tensors),
                       {{format_key, format},
                        {network_key, network.to_json().dump()},
                        {classes_key, json(classes).dump()}}};
  if (!network.columns().empty()) {
    file.metadata[columns_key] = network.columns().to_json().dump();
  }
  if (preparation != Preparation()) file.metadata[preparation_key] = to_json(preparation).dump();
  file.metadata[digest_key] = model_digest(file);
  return write_safetensors(file.tensors, file.metadata);
}

void save_model(FileSystem& files, const std::string& path, const Network& network,
                const std::vector<std::string>& classes, const Preparation& preparation) {
  write_atomically(files, path, encode_model(network, classes, preparation));
}

Model load_model(FileSystem& files, const std::string& path) {
  return decode_model(files.read(path), path);
}

bool describes_network(const SafetensorsFile& file) { return file.metadata.contains(network_key); }

Model decode_model(std::vector<std::byte> bytes, const std::string& path) {
  const SafetensorsFile file = read_safetensors(std::move(bytes), path);
  const auto version = file.metadata.find(format_key);
  if (file.metadata.contains(checkpoint_key)) {
    damaged_model(path, "is a checkpoint of a training, not a model",
                  "use the folder of its run; a training can start from it with --initial-model");
  }
  if (version == file.metadata.end()) {
    damaged_model(path, std::string("is not a Lockstep model: its metadata has no ") + format_key);
  }
  if (version->second != format) {
    damaged_model(path,
                  "has format " +
                      json(version->second.substr(0, 40))
                          .dump(-1, ' ', true, json::error_handler_t::replace) +
                      ", but this version reads only format 1",
                  "a newer Lockstep may read it");
  }
  refuse_stray_metadata(file.metadata, path);
  Model model;
  const auto digest = file.metadata.find(digest_key);
  if (digest != file.metadata.end()) {
    model.digest = model_digest(file);
    if (model.digest != digest->second) {
      damaged_model(
          path, "is damaged: its contents do not match its digest",
          "use an undamaged copy; if its run folder has checkpoints, --resume makes it again");
    }
  }
  const json description = parse_metadata(file.metadata, network_key, path);
  if (file.metadata.contains(preparation_key)) {
    model.preparation = preparation_of(parse_metadata(file.metadata, preparation_key, path), path);
  }
  const json classes = parse_metadata(file.metadata, classes_key, path);
  if (!classes.is_array()) damaged_model(path, "the class names are not a list");
  for (const json& name : classes) {
    if (!name.is_string()) damaged_model(path, "a class name is not a text");
    model.classes.push_back(name.get<std::string>());
  }
  try {
    // Its outputs need not be one for each class: its loss may be the user's.
    model.network = read_network(description, file, path);
    if (file.metadata.contains(columns_key)) {
      model.network.set_columns(
          TableColumns::from_json(parse_metadata(file.metadata, columns_key, path)));
    }
  } catch (const DataError&) {
    throw;
  } catch (const Error& error) {
    damaged_model(path, std::string("its network is invalid: ") + error.what(), error.hint());
  }
  return model;
}

std::string model_digest(const SafetensorsFile& file) {
  Digester digester;
  digester.add(file.metadata.size() - file.metadata.count(digest_key));
  for (const auto& [key, text] : file.metadata) {
    if (key == digest_key) continue;
    digester.add(key);
    digester.add(text);
  }
  std::vector<const NamedTensor*> tensors;
  for (const NamedTensor& t : file.tensors) tensors.push_back(&t);
  std::sort(tensors.begin(), tensors.end(),
            [](const NamedTensor* a, const NamedTensor* b) { return a->name < b->name; });
  digester.add(tensors.size());
  for (const NamedTensor* t : tensors) {
    const Tensor plain = t->tensor.to({}).to_row_major();
    digester.add(t->name);
    digester.add(plain.spec().to_string());
    digester.bytes(plain.raw(), plain.bytes());
  }
  return digester.finish().to_string();
}

std::string no_digest_text(const std::string& path) {
  return path + " has no digest of its contents: damage to its values cannot be detected";
}

namespace {

int64_t not_finite(const Tensor& tensor) {
  const Tensor host = tensor.to({});
  const auto* values = host.data<float>();
  return std::count_if(values, values + host.shape().elements(),
                       [](float v) { return !std::isfinite(v); });
}

}  // namespace

bool all_finite(const Network& network) {
  const auto sound = [](const auto& named) { return not_finite(named.value) == 0; };
  return std::ranges::all_of(network.parameters(), sound) &&
         std::ranges::all_of(network.state(), sound) &&
         std::ranges::all_of(network.row_states(), sound);
}

void require_finite(const Tensor& tensor, const std::string& tensor_name, const std::string& name) {
  const int64_t bad = not_finite(tensor), count = tensor.shape().elements();
  if (bad == 0) return;
  damaged_model(
      name,
      "tensor " + tensor_name + " has " + std::to_string(bad) + " of " + std::to_string(count) +
          " values that are not finite",
      "its training diverged, or the file was changed; an earlier checkpoint may be valid");
}

void require_finite(const Network& network, const std::string& name) {
  for (const Parameter& l : network.parameters()) require_finite(l.value, l.name, name);
  for (const NetworkState& s : network.state()) require_finite(s.value, s.name, name);
  for (const RowState& s : network.row_states()) require_finite(s.value, s.name, name);
}

}  // namespace lockstep
