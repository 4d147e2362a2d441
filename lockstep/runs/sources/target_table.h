// Tables with the targets of images, and columns of texts among targets.
#pragma once

#include <string>
#include <vector>

#include "lockstep/data/datastores/datastore.h"
#include "lockstep/data/datastores/tables/table_column.h"

namespace lockstep {

// What the targets are in a table next to images.
struct TargetTable {
  // In this order; empty: all but the first and `others`.
  std::vector<std::string> columns = {};
  std::vector<std::string> categories = {};  // those of texts, see CsvOptions::target_columns
  std::vector<std::string> known = {};       // the targets of a training (TableColumns::target)
  std::vector<std::string> others = {};      // are not targets
};

// The columns of the targets of a training, in which a column of texts has a target for each text.
std::vector<std::string> columns_of_targets(const std::vector<std::string>& targets,
                                            const std::vector<std::string>& categories);

// Opens a table whose first column has the names of `inputs`, with or without their extension.
// Other columns than those of `table` are not read. Throws what csv_datastore() throws,
// InvalidArgument for categories that are not among its columns, and DataError, naming it, for an
// input without a row or with two of them, and for a text that the training did not have.
DatastorePtr open_target_table(const Datastore& inputs, const std::string& name,
                               const TargetTable& table);

// The fields of a column of this table, in the order of `inputs`. `option` is the option that names
// the column. Throws what table_column() throws, and DataError as open_target_table().
TableColumn column_of_target_table(const Datastore& inputs, const std::string& name,
                                   const std::string& column, const std::string& option);

}  // namespace lockstep
