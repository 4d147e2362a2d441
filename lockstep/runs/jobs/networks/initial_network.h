// Networks of jobs that begin with those of models: [network] from, replace, and what changes
// layers by patterns of their names.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "lockstep/engine/formats/safetensors.h"
#include "lockstep/engine/nn/network.h"

namespace lockstep {

// Expands a list of layers of the table `field` of [network].
using ExpandLayers =
    std::function<nlohmann::ordered_json(const nlohmann::json& layers, const char* field)>;

// The network of a model file, or of the run in a folder. Throws DataError for other files,
// FileError.
Network model_network(const std::string& path);

// The network of a model, changed as [network] says: `input` changes the fields of its first layer,
// and `replace` puts other layers in the place of the last ones, from `replace_from` on, or else
// from the last layer with parameters on. Returns its description for Network::from_json(). Throws
// InvalidArgument for layers that do not exist, and new ones with names of the model.
nlohmann::json changed_network(const Network& model, const nlohmann::json& table,
                               const ExpandLayers& expand);

// Sets fields of layers by patterns of their names (matches_pattern()):
//   learning_rate_factors = { "stage1*" = 0.1 }: of all with parameters; names win over
//     patterns, and two patterns with different factors for a layer are refused
//   layer_decay = 0.8: factor 0.8 ^ k of the k-th layer with parameters before the last one; it
//     multiplies the factors above
//   keep_statistics = ["*"]: batch normalization uses its moving statistics and keeps them, and
//     inputs keep theirs
// Throws InvalidArgument for a pattern without such a layer.
void change_layers(nlohmann::json& layers, const nlohmann::json& table);

// What a network took from a model.
struct TakenValues {
  int64_t taken = 0;
  std::vector<std::string> made;  // values of the network that the model has not, with their shape
  std::vector<std::string> names_made = {};  // the same without shapes
  std::vector<std::string> unused;           // of the model
  std::string translated = {};  // how names were matched, if they are not the network's
  // "62 values of 'model.safetensors'; new: ..."
  std::string describe(const std::string& path) const;
};

// Copies the values whose names and shapes fit to an initialized network, or with `check_alone`
// only compares. Names of PyTorch (`conv1.weight`, `bn1.running_mean`) are translated: tensors of
// torchvision's ResNets are matched with those of a network in their order, others by the names of
// layers. Throws InvalidArgument if nothing fits.
TakenValues take_values(Network& network, const std::vector<NamedTensor>& values,
                        const std::string& path, bool check_alone);

}  // namespace lockstep
