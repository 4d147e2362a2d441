#include "lockstep/data/datastores/tables/table_features.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "lockstep/base/counted.h"
#include "lockstep/base/error.h"
#include "lockstep/data/datastores/tables/category_names.h"

namespace lockstep {
namespace {

constexpr const char* kLeaveOut = "leave the column out: ignored_columns";

}  // namespace

void TableFeatures::add(std::string name, std::vector<float> of_rows) {
  names.push_back(std::move(name));
  values.push_back(std::move(of_rows));
}

void TableFeatures::add_numbers(const std::string& column, std::vector<float> of_rows) {
  if (options_.missing == MissingValues::refuse) return add(column, std::move(of_rows));
  std::vector<float> flags(of_rows.size(), 0);
  int64_t missing = 0;
  double sum = 0;
  for (size_t i = 0; i < of_rows.size(); ++i) {
    if (std::isnan(of_rows[i])) {
      flags[i] = 1;
      ++missing;
    } else {
      sum += static_cast<double>(of_rows[i]);
    }
  }
  const int64_t there = std::ssize(of_rows) - missing;
  const auto known = options_.known_means.find(column);
  if (known == options_.known_means.end() && there == 0) {
    throw DataError(
        "[csv_datastore] " + source_ + ", column " + column + ": all values are missing",
        kLeaveOut);
  }
  const float mean = known != options_.known_means.end()
                         ? known->second
                         : static_cast<float>(sum / static_cast<double>(there));
  for (float& value : of_rows) value = std::isnan(value) ? mean : value;
  if (!column.empty()) means[column] = mean;
  if (missing > 0) {
    notices.push_back(source_ + ": " + counted(missing, "value") + " of `" + column +
                      "` missing and filled in with the mean");
  }
  add(column, std::move(of_rows));
  // A network that was trained has the flags of its training.
  const std::string flag = category_name(column, kMissing);
  const auto& columns = options_.known_columns;
  const bool wanted = trained() ? std::ranges::find(columns, flag) != columns.end() : missing > 0;
  if (options_.missing == MissingValues::flag && wanted) add(flag, std::move(flags));
}

void TableFeatures::add_category(const std::string& column, const std::vector<std::string>& texts) {
  std::set<std::string> categories;
  for (const std::string& known : options_.known_columns) {
    if (is_category_of(known, column)) categories.insert(text_of_category(known, {column}));
  }
  if (!trained()) categories.insert(texts.begin(), texts.end());
  if (categories.size() > kMostCategories) {
    throw DataError("[csv_datastore] " + source_ + ", column " + column + " has " +
                        std::to_string(categories.size()) + " different texts, at most " +
                        std::to_string(kMostCategories) + " can be categories",
                    kLeaveOut);
  }
  std::map<std::string, int64_t> unknown;
  for (const std::string& text : texts) {
    if (!categories.contains(text)) ++unknown[text];
  }
  for (const auto& [text, count] : unknown) {
    notices.push_back(source_ + ": " + counted(count, "row") + " with `" +
                      category_name(column, text) +
                      "`, which the training did not have: all its categories are 0");
  }
  for (const std::string& category : categories) {
    std::vector<float> ones;
    ones.reserve(texts.size());
    for (const std::string& text : texts) ones.push_back(text == category ? 1.0f : 0.0f);
    add(category_name(column, category), std::move(ones));
  }
}

}  // namespace lockstep
