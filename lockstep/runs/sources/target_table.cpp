#include "lockstep/runs/sources/target_table.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <map>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/os/file.h"
#include "lockstep/base/suggest.h"
#include "lockstep/data/datastores/datastores.h"
#include "lockstep/data/datastores/tables/category_names.h"
#include "lockstep/data/datastores/tables/table_text.h"
#include "lockstep/storage/s3_files.h"

namespace lockstep {
namespace {

// The names of a table's columns.
std::vector<std::string> names_of_columns(FileSystem& files, const std::string& name) {
  const std::vector<std::byte> bytes = files.read(name);
  std::string storage;
  TableRecords records(name, table_text(bytes, name, storage));
  std::vector<std::string> fields;
  if (!records.next(fields)) throw DataError("[data] " + name + " is empty");
  return fields;
}

// The column of texts to which a target `kind=a` belongs; else the name of the target.
std::string column_of(const std::string& target, const std::vector<std::string>& categories) {
  const std::string column = column_of_category(target, categories);
  return column.empty() ? target : column;
}

// The columns of the targets in a table with the columns `all`, of which the first has names.
std::vector<std::string> target_columns_of(const std::string& name, const TargetTable& table,
                                           const std::vector<std::string>& all) {
  if (all[0].empty()) {
    throw DataError("[data] the first column of the targets " + name + " has no name",
                    "it has the names of the images: call it `file`");
  }
  std::vector<std::string> columns = table.columns;
  if (columns.empty()) columns = columns_of_targets(table.known, table.categories);
  if (columns.empty()) {
    std::copy_if(all.begin() + 1, all.end(), std::back_inserter(columns), [&](const auto& column) {
      return std::ranges::find(table.others, column) == table.others.end();
    });
  }
  for (const std::string& column : columns) {
    if (std::find(all.begin() + 1, all.end(), column) != all.end()) continue;
    throw DataError("[data] the targets " + name + " have no column `" + column + "`",
                    suggest(column, {all.begin() + 1, all.end()}));
  }
  for (const std::string& column : table.categories) {
    if (std::ranges::find(columns, column) != columns.end()) continue;
    throw InvalidArgument(
        "[data] categories: the column `" + column + "` is not a target of the table " + name,
        suggest(column, columns));
  }
  return columns;
}

// The rows of a table of targets, in the order of their columns, labeled by the names of images.
DatastorePtr rows_of_targets(const std::string& name, const TargetTable& table) {
  FileSystem& files = storage::files_of(name);
  const std::vector<std::string> all = names_of_columns(files, name);
  const std::vector<std::string> columns = target_columns_of(name, table, all);
  // The names are read as if they were labels.
  CsvOptions options{
      .label_column = all[0], .categories = table.categories, .labels_are_names = true};
  std::copy_if(all.begin() + 1, all.end(), std::back_inserter(options.ignored_columns),
               [&](const auto& c) { return std::ranges::find(columns, c) == columns.end(); });
  DatastorePtr rows = csv_datastore(files, name, options);
  std::vector<std::string> targets = rows->spec().inputs[0].columns;
  if (!table.known.empty() && !table.categories.empty()) {
    for (const std::string& target : targets) {
      const bool known = std::ranges::find(table.known, target) != table.known.end();
      if (known || column_of(target, table.categories) == target) continue;
      throw DataError(
          "[data] the targets " + name + " have `" + target + "`, which the training did not have",
          suggest(target, table.known));
    }
    // Also the texts that this table lacks.
    options.known_columns = table.known;
    rows = csv_datastore(files, name, options);
    targets = rows->spec().inputs[0].columns;
  }
  std::vector<size_t> from;
  for (const std::string& column : columns) {
    for (size_t k = 0; k < targets.size(); ++k) {
      if (column_of(targets[k], table.categories) == column) from.push_back(k);
    }
  }
  return std::ranges::is_sorted(from) ? rows : reorder(rows, 0, std::move(from));
}

// For each input the index of its name among `keys`, the names in the table's first column.
std::vector<int64_t> indices_of(const Datastore& inputs, const std::string& name,
                                const std::vector<std::string>& keys) {
  std::map<std::string, int64_t> indices;
  for (size_t i = 0; i < keys.size(); ++i) {
    if (indices.emplace(keys[i], static_cast<int64_t>(i)).second) continue;
    throw DataError("[data] the targets " + name + " have two rows for `" + keys[i] + "`");
  }
  std::vector<int64_t> wanted;
  for (int64_t i = 0; i < inputs.size(); ++i) {
    const std::string whole = inputs.name(i);
    auto found = indices.find(whole);
    if (found == indices.end()) found = indices.find(whole.substr(0, whole.find_last_of('.')));
    if (found == indices.end()) {
      throw DataError("[data] " + whole + " of " + inputs.describe() + " has no row in " + name,
                      "the first column has the paths in the folder");
    }
    wanted.push_back(found->second);
  }
  return wanted;
}

}  // namespace

std::vector<std::string> columns_of_targets(const std::vector<std::string>& targets,
                                            const std::vector<std::string>& categories) {
  std::vector<std::string> columns;
  for (const std::string& target : targets) {
    const std::string column = column_of(target, categories);
    if (columns.empty() || columns.back() != column) columns.push_back(column);
  }
  return columns;
}

DatastorePtr open_target_table(const Datastore& inputs, const std::string& name,
                               const TargetTable& table) {
  DatastorePtr rows = rows_of_targets(name, table);
  std::vector<std::string> keys;
  for (int64_t i = 0; i < rows->size(); ++i) {
    keys.push_back(rows->classes()[static_cast<size_t>(rows->label(i))]);
  }
  return subset(std::move(rows), indices_of(inputs, name, keys));
}

TableColumn column_of_target_table(const Datastore& inputs, const std::string& name,
                                   const std::string& column, const std::string& option) {
  FileSystem& files = storage::files_of(name);
  const TableColumn all = table_column(files, name, column, option);
  const TableColumn keys = table_column(files, name, names_of_columns(files, name)[0], "targets");
  TableColumn chosen;
  for (const int64_t index : indices_of(inputs, name, keys.fields)) {
    chosen.fields.push_back(all.fields[static_cast<size_t>(index)]);
    chosen.lines.push_back(all.lines[static_cast<size_t>(index)]);
  }
  return chosen;
}

}  // namespace lockstep
