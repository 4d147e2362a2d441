#include "lockstep/runs/jobs/networks/network_values.h"

#include <map>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/engine/formats/model.h"
#include "lockstep/train/state/checkpoint.h"

namespace lockstep {
namespace {

std::vector<NamedTensor> values_of(const Network& network) {
  std::vector<NamedTensor> values;
  for (const Parameter& l : network.parameters()) values.push_back({l.name, l.value});
  for (const NetworkState& s : network.state()) values.push_back({s.name, s.value});
  return values;
}

}  // namespace

NetworkValues network_values(FileSystem& files, const std::string& path, bool any) {
  std::vector<std::byte> bytes = files.read(path);
  NetworkValues values;
  SafetensorsFile file = read_safetensors(bytes, path);
  if (any && !is_checkpoint(file) && !describes_network(file)) {
    return {.tensors = std::move(file.tensors), .checked = false, .widened = file.widened};
  }
  if (is_checkpoint(file)) {
    values.tensors = checkpoint_values(files, path, &values.columns, &values.averaged);
    return values;
  }
  const Model model = decode_model(std::move(bytes), path);
  return {.tensors = values_of(model.network),
          .checked = !model.digest.empty(),
          .columns = model.network.columns(),
          .widened = file.widened,
          .classes = model.classes};
}

void require_finite(const std::vector<NamedTensor>& values, const std::string& path) {
  for (const NamedTensor& value : values) {
    if (value.tensor.dtype() == DType::f32) require_finite(value.tensor, value.name, path);
  }
}

void check_values(const Network& network, const std::vector<NamedTensor>& values,
                  const std::string& path) {
  const auto refuse = [&](const std::string& what) {
    throw InvalidArgument("[run] the values of " + path + " do not fit the job's network: " + what,
                          "`lockstep summary` shows the layers of a job and of a model");
  };
  std::map<std::string, Tensor> given;
  for (const NamedTensor& value : values) given.emplace(value.name, value.tensor);
  for (const auto& [name, shape] : network.value_shapes()) {
    const auto found = given.find(name);
    if (found == given.end()) refuse("it has no " + name);
    if (!(found->second.shape() == shape) || found->second.dtype() != DType::f32) {
      refuse("it has " + name + " of " + found->second.shape().to_string() + ", but the job has " +
             shape.to_string());
    }
    given.erase(found);
  }
  if (!given.empty()) refuse("the job has no " + given.begin()->first);
}

void set_values(Network& network, const std::vector<NamedTensor>& values, const std::string& path) {
  check_values(network, values, path);
  std::map<std::string, Tensor> given;
  for (const NamedTensor& value : values) given.emplace(value.name, value.tensor);
  for (const Parameter& l : network.parameters()) l.value.copy_from(given.at(l.name));
  for (const NetworkState& s : network.state()) s.value.copy_from(given.at(s.name));
}

}  // namespace lockstep
