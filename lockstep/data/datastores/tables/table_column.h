// One column of a table, as text.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

class FileSystem;

// The fields of a column in the order of the rows, those of csv_datastore(), and their lines.
struct TableColumn {
  std::vector<std::string> fields;
  std::vector<int64_t> lines;
};

// Throws FileError if the file cannot be read, and DataError, naming the file and the line, if it
// has no column of that name, or rows of other lengths. `option` is the option that names the
// column. Thread-safe.
TableColumn table_column(FileSystem& files, const std::string& path, const std::string& name,
                         const std::string& option);

}  // namespace lockstep
