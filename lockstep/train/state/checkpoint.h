// Checkpoints: one file, written atomically, with everything that a training needs to continue with
// the same bits.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/digest.h"
#include "lockstep/base/os/file.h"
#include "lockstep/engine/formats/safetensors.h"
#include "lockstep/train/optimizer/solver.h"
#include "lockstep/train/records/observer.h"

namespace lockstep {

// The network with the smallest validation loss so far.
struct BestNetwork {
  int64_t iteration = 0;
  double loss = 0;
  std::vector<Tensor> parameters, state;  // as in Network::parameters() and state()
};

// Makes a BestNetwork with copies of the network's current values. Thread-safe.
BestNetwork best_of(const Network& network, int64_t iteration, double loss);

// Gives a network the values of `best`, which was made of this network. One thread at a time.
void set_values(Network& network, const BestNetwork& best);

// The tensors that a digest of a training covers. Names: "learnable/<layer>.<parameter>",
// "solver/<layer>.<parameter>.<array>" for each array of the solver, "state/<layer>.<name>", and
// "rows/<layer>.<name>" for states by row. Thread-safe.
std::vector<NamedTensor> training_tensors(const Network& network, const Solver& solver);

// The position of a training, without parameters, network state and solver state.
struct TrainingPosition {
  int64_t iteration = 0;  // the last finished one
  int64_t epoch = 0;      // of the next mini-batch, from 0
  int64_t batch = 0;      // the next mini-batch of that epoch, from 0
  Digest digest;          // after `iteration`
  Digest chain;           // of the receipt
  std::vector<ValidationRecord> validations;
  std::optional<BestNetwork> best;  // only if output_network is "best"
  // The identity, which must agree if the training is continued: resolved options, network, data.
  nlohmann::ordered_json identity;
};

// Writes <folder>/checkpoint-<iteration>.safetensors atomically and removes all but the `keep`
// newest checkpoints. Returns the path. Throws FileError. Earlier checkpoints then remain.
std::string write_checkpoint(FileSystem& files, const std::string& folder, const Network& network,
                             const Solver& solver, const TrainingPosition& position, int64_t keep);

// A checksum over names, types, sizes, elements and the position text, with tensors sorted by name.
// It changes if any bit changes.
std::string checkpoint_checksum(const std::vector<NamedTensor>& tensors,
                                const std::string& position);

// The form of checkpoints and of saved loops (custom_loop.h): tensors, a position and their
// checksum. `kind` ("checkpoint") names the form in the file and in errors.
struct CheckedFile {
  SafetensorsFile file;
  nlohmann::ordered_json position;
};
std::vector<std::byte> write_checked(std::vector<NamedTensor> tensors, const std::string& kind,
                                     const nlohmann::ordered_json& position);
// Throws FileError, and DataError for a file of another kind or with another checksum.
CheckedFile read_checked(FileSystem& files, const std::string& path, const std::string& kind);

// The first field in which two descriptions differ: "training.l2: 0.1 here, 0.2 there"; "" if they
// agree. Missing fields are null. `path` is the name of the whole.
std::string first_difference(const nlohmann::ordered_json& here,
                             const nlohmann::ordered_json& there, const std::string& path);

// Whether the folder contains checkpoints, valid or damaged.
bool holds_checkpoints(FileSystem& files, const std::string& folder);

// Paths of the checkpoints, newest first. Empty if the folder does not exist.
std::vector<std::string> checkpoints_in(FileSystem& files, const std::string& folder);

// Whether a safetensors file is a checkpoint, valid or damaged.
bool is_checkpoint(const SafetensorsFile& file);

// The network's parameters and state in a checkpoint, with their names in a model
// ("<layer>.<parameter>"). `columns`, if not null, receives those of the network, if it has some.
// `averaged`, if not null: moving averages of the parameters (average_decay) take their place, as
// in the model of such a training; it receives whether there are some. Throws FileError, DataError
// for a damaged checkpoint.
std::vector<NamedTensor> checkpoint_values(FileSystem& files, const std::string& path,
                                           TableColumns* columns = nullptr,
                                           bool* averaged = nullptr);

// Options for the search for a checkpoint.
struct CheckpointChoice {
  int64_t before = 0;      // only checkpoints before this iteration; 0: all
  bool only_read = false;  // damaged checkpoints are not renamed
  // Called if the data differ. Returns the changed observations, or "" if they are not known.
  std::function<std::string()> data_changes = {};
};

// Finds the newest valid checkpoint in a folder, loads it into network and solver, and returns its
// position; nothing if there is none. Skips damaged checkpoints, reports them to `notice` and
// renames them to *.damaged. Throws InvalidArgument for a valid checkpoint of another training
// (naming the difference), and for another numerics fingerprint unless `allow_other_numerics`.
// Throws DataError if the loaded values do not have the checkpoint's digest.
std::optional<TrainingPosition> resume_from_checkpoint(
    FileSystem& files, const std::string& folder, Network& network, Solver& solver,
    const nlohmann::ordered_json& identity, bool allow_other_numerics,
    const std::function<void(const std::string&)>& notice, const CheckpointChoice& choice = {});

}  // namespace lockstep
