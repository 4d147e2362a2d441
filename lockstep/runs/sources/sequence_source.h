// Targets of sequences, by the names that job files and the command use.
#pragma once

#include <string>
#include <vector>

#include "lockstep/data/datastores/datastores.h"
#include "lockstep/engine/formats/model.h"
#include "lockstep/engine/nn/network.h"

namespace lockstep {

// How sequences get their targets: [data] of a job file, or the options of the command.
struct SequenceTargets {
  std::string label_column = {};          // the class of each step
  std::vector<std::string> columns = {};  // numbers of each step
  // "next_step", "inputs" (the sequences themselves), or a folder with a file of the same name for
  // each sequence.
  std::string targets = {};

  bool any() const { return !label_column.empty() || !columns.empty() || !targets.empty(); }
};

// Whether the network takes sequences of numbers and nothing else.
bool takes_only_sequences(const Network& network);

// Those that the network of a model was trained with, or given ones.
SequenceTargets targets_of_model(const Model& model, SequenceTargets given);

// The targets that the files of the sequences have themselves. Throws InvalidArgument for targets
// in two ways, and for targets by step of a network that gives one result for a sequence.
StepTargets step_targets(const SequenceTargets& given, const Network& network);

// Adds the others. With one result for a sequence, a file of targets has one line. `header` is as
// in SequenceFolderOptions. Throws what sequence_folder(), match_by_name() and with_targets()
// throw, and DataError for another number of lines.
DatastorePtr with_other_targets(DatastorePtr sequences, const std::string& targets, bool header,
                                const Network& network);

}  // namespace lockstep
