// Model files: safetensors with the network as JSON in the metadata.
#pragma once

#include <string>
#include <vector>

#include "lockstep/base/file.h"
#include "lockstep/engine/formats/safetensors.h"
#include "lockstep/engine/nn/network.h"

namespace lockstep {

// A network as it is used: with the names of its classes, when it classifies.
struct Model {
  Network network;
  std::vector<std::string> classes;
  // Of the contents, as the file says and reading has found; "" where it says none: damage to the
  // values of such a file is not noticed.
  std::string digest = {};
};

// Writes learnables and state (tensors "<layer>.<parameter>", row-major f32) and, in the metadata,
// "lockstep.network" (Network::to_json), "lockstep.classes" (a JSON list), "lockstep.format" ("1")
// and "lockstep.digest" (model_digest()). Atomic. Throws FileError.
void save_model(FileSystem& files, const std::string& path, const Network& network,
                const std::vector<std::string>& classes);

// Throws DataError naming the file when it is damaged, no model, or does not fit its own network,
// or its digest is not that of what was read. A file without a digest is read.
Model load_model(FileSystem& files, const std::string& path);

// The same as bytes, for other processes. `name` stands for the file in errors. Thread-safe, as the
// two above.
std::vector<std::byte> encode_model(const Network& network,
                                    const std::vector<std::string>& classes);
Model decode_model(std::vector<std::byte> bytes, const std::string& name = "the model");

// Of everything that a file says, whatever the order and the spaces of its header: the number of
// entries of the metadata but "lockstep.digest", each one's key and text, sorted by key; then the
// number of tensors and, sorted by name, each one's name, type and shape as text ("3x2 f32"), and
// bytes, row-major. See Digester for how they are put together. Thread-safe.
std::string model_digest(const SafetensorsFile& file);

// What to tell the user of a file without one.
std::string no_digest_text(const std::string& path);

// Whether all of a network's values are finite numbers.
bool all_finite(const Network& network);

// Throws DataError naming `name`, the first tensor with a value that is no finite number, and how
// many it has. To be asked before a network is used; loading a model does not ask.
void require_finite(const Network& network, const std::string& name);
// The same of one tensor (f32), which is named in the error.
void require_finite(const Tensor& tensor, const std::string& tensor_name, const std::string& name);

}  // namespace lockstep
