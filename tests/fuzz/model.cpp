// Model files, which contain the network's description as text.
#include "lockstep/engine/formats/model.h"

#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/engine/formats/safetensors.h"
#include "tests/fuzz/network.h"
#include "tests/fuzz/target.h"
#include "tests/train/power_cut.h"

namespace lockstep::fuzz {
namespace {

Bytes model_file() {
  testing::PowerCutFiles files;  // in memory
  files.make_folder("models");
  save_model(files, "models/m", small_network(), {"a", "b", "c"});
  return files.read("models/m");
}

void load(std::span<const std::byte> bytes) {
  testing::PowerCutFiles files;
  files.make_folder("models");
  write_atomically(files, "models/m", bytes);
  const Model model = load_model(files, "models/m");
  model.network.summary();
}

// Sets a matching digest, so that later checks are reached.
void load_fitting(SafetensorsFile file) {
  file.metadata["lockstep.digest"] = model_digest(file);
  load(write_safetensors(file.tensors, file.metadata));
}

}  // namespace

// A whole file. If it begins with a brace: the description in a file with valid tensors.
void parse(std::span<const std::byte> bytes) {
  if (bytes.empty() || bytes.front() != std::byte{'{'}) {
    try {
      load(bytes);
    } catch (const DataError&) {
      load_fitting(read_safetensors(bytes, "model"));
    }
    return;
  }
  SafetensorsFile file = read_safetensors(model_file(), "model");
  file.metadata["lockstep.network"] = text_of(bytes);
  load_fitting(std::move(file));
}

std::vector<Bytes> seeds() { return {model_file(), bytes_of(small_network().to_json().dump())}; }

}  // namespace lockstep::fuzz
