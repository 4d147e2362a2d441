// Tables with the targets of images.
#pragma once

#include <string>
#include <vector>

#include "lockstep/data/datastores/datastore.h"

namespace lockstep {

// What the targets are in a table next to images.
struct TargetTable {
  std::vector<std::string> columns = {};     // in this order; empty: all but the first
  std::vector<std::string> categories = {};  // those of texts, see CsvOptions::target_columns
  std::vector<std::string> known = {};       // the targets of a training (TableColumns::target)
};

// Opens a table whose first column has the names of `inputs`, with or without their extension.
// Other columns than those of `table` are not read. Throws what csv_datastore() throws,
// InvalidArgument for categories that are not among its columns, and DataError, naming it, for an
// input without a row or with two of them, and for a text that the training did not have.
DatastorePtr open_target_table(const Datastore& inputs, const std::string& name,
                               const TargetTable& table);

}  // namespace lockstep
