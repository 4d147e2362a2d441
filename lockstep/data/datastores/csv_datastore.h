// Vectors of features from a CSV file.
#pragma once

#include <string>

#include "lockstep/base/os/file.h"
#include "lockstep/data/datastores/datastore.h"

namespace lockstep {

struct CsvOptions {
  std::string label_column = {};  // name of the column; "": the last column
  bool labelled = true;  // false: all columns are features, and all rows belong to one class, ""
};

// The rows of a file as one-dimensional arrays, in the order of the file. The label column contains
// the class names. All other columns contain finite numbers, which are read as f64 and rounded to
// f32. Classes are sorted bytewise.
//
// The first line contains the names of the columns. Files that are used together must have the same
// order of columns. Fields are separated by commas. Fields in double quotes may contain commas and
// doubled quotes, but no line breaks. Blanks around numbers and empty lines are ignored. Lines may
// end in LF or CR LF. A byte order mark is skipped.
//
// Observations are called "line 2", .... The file is read once, during this call. Throws FileError
// if it cannot be read. Throws DataError, naming file, line and column, for invalid contents: no
// lines, columns with equal names, a row with another number of columns, an invalid number or one
// beyond f32, an empty label. Thread-safe.
DatastorePtr csv_datastore(const std::string& path, const CsvOptions& options = {});
// The same for another file system than the local one.
DatastorePtr csv_datastore(FileSystem& files, const std::string& path,
                           const CsvOptions& options = {});

}  // namespace lockstep
