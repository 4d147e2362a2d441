#include "lockstep/engine/formats/model.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "lockstep/base/error.h"
#include "lockstep/engine/formats/safetensors.h"

namespace lockstep {
namespace {

using nlohmann::json;

constexpr const char* network_key = "lockstep.network";
constexpr const char* classes_key = "lockstep.classes";
constexpr const char* format_key = "lockstep.format";
constexpr const char* format = "1";
constexpr int deepest = 8;  // of the network's JSON
constexpr size_t most_layers = 100'000;

[[noreturn]] void damaged(const std::string& path, const std::string& what,
                          const std::string& hint = {}) {
  throw DataError("[model] " + path + ": " + what, hint);
}

json parse_metadata(const std::map<std::string, std::string>& metadata, const char* key,
                    const std::string& path) {
  const auto found = metadata.find(key);
  if (found == metadata.end()) {
    damaged(path, std::string("is no model of Lockstep: its metadata has no ") + key);
  }
  const auto watch = [&](int depth, json::parse_event_t, json&) {
    if (depth > deepest) damaged(path, std::string(key) + " is nested too deeply");
    return true;
  };
  json value = json::parse(found->second, watch, false);
  if (value.is_discarded()) damaged(path, std::string(key) + " in its metadata is no JSON");
  return value;
}

Network read_network(const json& description, const SafetensorsFile& file,
                     const std::string& path) {
  if (description.is_object() && description.contains("layers") &&
      description["layers"].size() > most_layers) {
    damaged(path, "describes more than " + std::to_string(most_layers) + " layers");
  }
  Network network = Network::from_json(description);
  network.check();
  // All shapes are compared before memory is asked for: a description may claim anything.
  std::set<std::string> wanted;
  for (const auto& [name, shape] : network.value_shapes()) {
    wanted.insert(name);
    const Tensor& tensor = file.at(name, path);
    if (tensor.dtype() != DType::f32 || !(tensor.shape() == shape)) {
      damaged(path, "tensor " + name + " is " + tensor.spec().to_string() + ", its layer wants " +
                        shape.to_string() + " f32");
    }
  }
  for (const NamedTensor& tensor : file.tensors) {
    if (!wanted.contains(tensor.name)) damaged(path, "no layer has the tensor " + tensor.name);
  }
  network.initialize(0);
  const auto fill = [&](const std::string& name, const Tensor& value) {
    const Tensor& from = file.at(name, path);
    value.copy_from(from);
  };
  for (const Learnable& learnable : network.learnables()) fill(learnable.name, learnable.value);
  for (const NetworkState& state : network.state()) fill(state.name, state.value);
  return network;
}

}  // namespace

std::vector<std::byte> encode_model(const Network& network,
                                    const std::vector<std::string>& classes) {
  if (!network.initialized()) {
    throw InvalidArgument("[save_model] the network has no values yet", "initialize it first");
  }
  std::vector<NamedTensor> tensors;
  for (const Learnable& learnable : network.learnables()) {
    tensors.push_back({learnable.name, learnable.value});
  }
  for (const NetworkState& state : network.state()) tensors.push_back({state.name, state.value});
  const std::map<std::string, std::string> metadata{
      {format_key, format},
      {network_key, network.to_json().dump()},
      // Folder names may be any bytes.
      {classes_key, json(classes).dump(-1, ' ', false, json::error_handler_t::replace)}};
  return write_safetensors(tensors, metadata);
}

void save_model(FileSystem& files, const std::string& path, const Network& network,
                const std::vector<std::string>& classes) {
  write_atomically(files, path, encode_model(network, classes));
}

Model load_model(FileSystem& files, const std::string& path) {
  return decode_model(files.read(path), path);
}

Model decode_model(std::vector<std::byte> bytes, const std::string& path) {
  const SafetensorsFile file = read_safetensors(std::move(bytes), path);
  const auto version = file.metadata.find(format_key);
  if (version == file.metadata.end()) {
    damaged(path, std::string("is no model of Lockstep: its metadata has no ") + format_key);
  }
  if (version->second != format) {
    damaged(path,
            "has format " +
                json(version->second.substr(0, 40))
                    .dump(-1, ' ', true, json::error_handler_t::replace) +
                ", this version reads 1",
            "a newer Lockstep may read it");
  }
  const json description = parse_metadata(file.metadata, network_key, path);
  const json classes = parse_metadata(file.metadata, classes_key, path);
  Model model;
  if (!classes.is_array()) damaged(path, "the names of the classes are no list");
  for (const json& name : classes) {
    if (!name.is_string()) damaged(path, "the name of a class is no text");
    model.classes.push_back(name.get<std::string>());
  }
  try {
    model.network = read_network(description, file, path);
    if (!model.classes.empty()) {
      for (const Shape& shape : model.network.output_shapes()) {
        if (shape.elements() != static_cast<int64_t>(model.classes.size())) {
          damaged(path, "names " + std::to_string(model.classes.size()) +
                            " classes, its network gives " + shape.to_string() + " values");
        }
      }
    }
  } catch (const DataError&) {
    throw;
  } catch (const Error& error) {
    damaged(path, std::string("its network cannot be: ") + error.what(), error.hint());
  }
  return model;
}

}  // namespace lockstep
