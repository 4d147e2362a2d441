// Vectors of features from a CSV file.
#pragma once

#include <string>

#include "lockstep/base/file.h"
#include "lockstep/data/datastore.h"

namespace lockstep {

struct CsvOptions {
  std::string label_column = {};  // its name; "": the last column
  bool labelled = true;           // else all columns are features, and all rows of one class, ""
};

// The rows of a file as arrays of one dimension, in the order of the file: the column of labels
// names the class, all others hold finite numbers, which are read as f64 and rounded to f32.
// Classes are sorted bytewise.
//
// The first line names the columns; files that belong together must have them in one order. Fields
// are separated by commas; those in "quotes" may hold commas, and quotes doubled, but no line
// breaks. Blanks around numbers and empty lines do not count, lines may end in LF or CR LF, and a
// byte order mark is passed over.
//
// Observations are called "line 2", ... Reads the file once, at once. Throws FileError when it
// cannot be read; DataError naming file, line and column for what is no such file: no lines,
// columns of one name, a row of other columns, no number or none that f32 can hold, an empty label.
// Thread-safe.
DatastorePtr csv_datastore(const std::string& path, const CsvOptions& options = {});
// The same, from other files than the machine's own.
DatastorePtr csv_datastore(FileSystem& files, const std::string& path,
                           const CsvOptions& options = {});

}  // namespace lockstep
