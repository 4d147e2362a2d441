// The features that columns of a table give: numbers, with what stands for missing ones, and texts
// as categories.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/data/datastores/datastores.h"

namespace lockstep {

// What a category is called where its text is missing, and the feature that flags missing numbers.
inline constexpr const char* kMissing = "missing";

// Collects the features of a table of n rows, column by column. Not thread-safe.
class TableFeatures {
 public:
  // `source` begins messages: "file a.csv". Keep the options alive.
  TableFeatures(std::string source, const CsvOptions& options)
      : source_(std::move(source)), options_(options) {}

  // A column of n numbers, where NaN is a missing one. "": it has no name. Throws DataError, naming
  // the column, if all are missing and no mean is known.
  void add_numbers(const std::string& column, std::vector<float> values);
  // A column of n texts. Throws DataError, naming the column, for too many different ones.
  void add_category(const std::string& column, const std::vector<std::string>& texts);

  // The names of the features, and the n values of each.
  std::vector<std::string> names = {};
  std::vector<std::vector<float>> values = {};
  std::map<std::string, float> means =
      {};  // of columns of numbers, unless missing ones are refused
  std::vector<std::string> notices = {};

 private:
  void add(std::string name, std::vector<float> of_rows);
  bool trained() const { return !options_.known_columns.empty(); }

  const std::string source_;
  const CsvOptions& options_;
};

}  // namespace lockstep
