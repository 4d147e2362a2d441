// One file of a folder of sequences: a table with a line for each step, or an array of NumPy.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "lockstep/data/datastores/datastores.h"

namespace lockstep {

// A sequence with its targets.
struct SequenceTable {
  Array steps = {};                       // steps x channels
  std::vector<std::string> columns = {};  // of the channels; empty: they have no names
  // As the options say, for each step: numbers, or classes.
  Array targets = {};
  std::vector<std::string> target_columns = {};  // with the texts of this file, `column=text`
  std::vector<std::string> labels = {};
};

// Notes of reading tables, without the names of these, and in how many.
using TableNotes = std::map<std::string, int64_t>;

// Reads a file. Notes of its reading are added to `notes`. Throws as sequence_folder().
SequenceTable read_sequence_table(const std::string& path, const SequenceFolderOptions& options,
                                  TableNotes& notes);

[[noreturn]] void refuse_sequences(const std::string& what, const std::string& hint = {});

}  // namespace lockstep
