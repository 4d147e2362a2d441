#include "lockstep/train/state/checkpoint.h"

#include <nlohmann/json.hpp>

#include "lockstep/engine/formats/safetensors.h"
#include "lockstep/train/options/options.h"
#include "lockstep/train/state/state_digest.h"
#include "tests/fuzz/network.h"
#include "tests/fuzz/target.h"
#include "tests/train/power_cut.h"

namespace lockstep::fuzz {
namespace {

constexpr const char* kFile = "run/checkpoint-00000007.safetensors";

nlohmann::ordered_json identity() {
  return {{"training", {{"seed", 1}}}, {"data", "some"}, {"version", 2}};
}

Bytes checkpoint_file() {
  testing::PowerCutFiles files;  // in memory
  Network network = small_network();
  const auto solver = make_solver(network, TrainingOptions());
  TrainingPosition position;
  position.iteration = 7;
  position.epoch = 1;
  position.batch = 3;
  position.digest = state_digest(network, *solver, position.iteration);
  position.identity = identity();
  position.validations.push_back({7, 1, 0.5, 0.25, 10, 0.1});
  BestNetwork best;
  best.iteration = 7;
  best.loss = 0.5;
  for (const auto& l : network.parameters()) best.parameters.push_back(l.value.clone());
  for (const auto& s : network.state()) best.state.push_back(s.value.clone());
  position.best = best;
  write_checkpoint(files, "run", network, *solver, position, 1);
  return files.read(kFile);
}

void resume(std::span<const std::byte> bytes) {
  testing::PowerCutFiles files;
  files.make_folder("run");
  write_atomically(files, kFile, bytes);
  Network network = small_network();
  const auto solver = make_solver(network, TrainingOptions());
  resume_from_checkpoint(files, "run", network, *solver, identity(), true,
                         [](const std::string&) {});
}

}  // namespace

// A whole file. If it begins with a brace: the text in a file with valid tensors and a matching
// checksum.
void parse(std::span<const std::byte> bytes) {
  if (bytes.empty() || bytes.front() != std::byte{'{'}) {
    resume(bytes);
    return;
  }
  static const Bytes sound = checkpoint_file();
  SafetensorsFile file = read_safetensors(sound, "checkpoint");
  std::sort(file.tensors.begin(), file.tensors.end(),
            [](const NamedTensor& a, const NamedTensor& b) { return a.name < b.name; });
  const std::string text = text_of(bytes);
  file.metadata["lockstep.position"] = text;
  file.metadata["lockstep.checksum"] = checkpoint_checksum(file.tensors, text);
  resume(write_safetensors(file.tensors, file.metadata));
}

std::vector<Bytes> seeds() {
  const Bytes file = checkpoint_file();
  return {file, bytes_of(read_safetensors(file, "checkpoint").metadata.at("lockstep.position"))};
}

}  // namespace lockstep::fuzz
