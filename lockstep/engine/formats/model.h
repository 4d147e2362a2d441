// Model files: safetensors with the network as JSON in the metadata.
#pragma once

#include <string>
#include <vector>

#include "lockstep/base/file.h"
#include "lockstep/engine/nn/network.h"

namespace lockstep {

// A network as it is used: with the names of its classes, when it classifies.
struct Model {
  Network network;
  std::vector<std::string> classes;
};

// Writes learnables and state (tensors "<layer>.<parameter>", row-major f32) and, in the metadata,
// "lockstep.network" (Network::to_json), "lockstep.classes" (a JSON list) and "lockstep.format"
// ("1"). Atomic. Throws FileError.
void save_model(FileSystem& files, const std::string& path, const Network& network,
                const std::vector<std::string>& classes);

// Throws DataError naming the file when it is damaged, no model, or does not fit its own network.
Model load_model(FileSystem& files, const std::string& path);

// The same as bytes, for other processes. `name` stands for the file in errors. Thread-safe, as the
// two above.
std::vector<std::byte> encode_model(const Network& network,
                                    const std::vector<std::string>& classes);
Model decode_model(std::vector<std::byte> bytes, const std::string& name = "the model");

}  // namespace lockstep
