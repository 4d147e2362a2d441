// Checkpoints: everything that a training needs to go on exactly, in one file that is there
// completely or not at all.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/digest.h"
#include "lockstep/base/file.h"
#include "lockstep/engine/formats/safetensors.h"
#include "lockstep/train/solver.h"
#include "lockstep/train/trainer.h"

namespace lockstep {

// The network as it was when its validation loss was smallest.
struct BestNetwork {
  int64_t iteration = 0;
  double loss = 0;
  std::vector<Tensor> learnables, state;  // as in Network::learnables() and state()
};

// That, with copies of the network's present values. Thread-safe.
BestNetwork best_of(const Network& network, int64_t iteration, double loss);

// What a digest of a training covers, by name: "learnable/<layer>.<parameter>", "solver/<the
// same>.<array>" for each of the solver's arrays, "state/<layer>.<name>". Thread-safe.
std::vector<NamedTensor> training_tensors(const Network& network, const Solver& solver);

// Where a training is, apart from learnables, network state and solver state.
struct TrainingPosition {
  int64_t iteration = 0;  // the last finished one
  int64_t epoch = 0;      // of the next mini-batch, from 0
  int64_t batch = 0;      // the next mini-batch of that epoch, from 0
  Digest digest;          // after `iteration`
  Digest chain;           // of the receipt
  std::vector<ValidationRecord> validations;
  std::optional<BestNetwork> best;  // only where it is wanted
  // What must agree for the training to go on: resolved options, network, data.
  nlohmann::ordered_json identity;
};

// Writes <folder>/checkpoint-<iteration>.safetensors atomically and removes all but the `keep`
// newest. Returns its path. Throws FileError; earlier checkpoints stay then.
std::string write_checkpoint(FileSystem& files, const std::string& folder, const Network& network,
                             const Solver& solver, const TrainingPosition& position, int64_t keep);

// Of names, types, sizes, elements and text, tensors sorted by name: what a flipped bit anywhere
// would change.
std::string checkpoint_checksum(const std::vector<NamedTensor>& tensors,
                                const std::string& position);

// Whether there are checkpoints, sound or not.
bool holds_checkpoints(FileSystem& files, const std::string& folder);

// Their paths, newest first; none where there is no such folder.
std::vector<std::string> checkpoints_in(FileSystem& files, const std::string& folder);

// Whether a safetensors file is a checkpoint, sound or not.
bool is_checkpoint(const SafetensorsFile& file);

// The network's learnables and state that a checkpoint holds, by the names that they have in a
// model ("<layer>.<parameter>"). Throws FileError; DataError for a damaged checkpoint.
std::vector<NamedTensor> checkpoint_values(FileSystem& files, const std::string& path);

// Which checkpoints are looked at.
struct CheckpointChoice {
  int64_t before = 0;      // of those before this iteration; 0: of all
  bool only_read = false;  // damaged ones keep their names
  // What `identity` is in the form that checkpoints had first, see first_identity.h.
  nlohmann::ordered_json first_identity = {};
  // Asked where the data are others: in which observations, or "" where that is not known.
  std::function<std::string()> data_changes = {};
};

// Finds the newest sound checkpoint in a folder, loads it into network and solver, and returns the
// position; nothing when there is none. Damaged ones are named to `notice`, renamed to *.damaged
// and passed over. Throws
// InvalidArgument for a sound checkpoint of another training (naming what differs), and for another
// numerics fingerprint unless `allow_other_numerics`.
std::optional<TrainingPosition> resume_from_checkpoint(
    FileSystem& files, const std::string& folder, Network& network, Solver& solver,
    const nlohmann::ordered_json& identity, bool allow_other_numerics,
    const std::function<void(const std::string&)>& notice, const CheckpointChoice& choice = {});

}  // namespace lockstep
