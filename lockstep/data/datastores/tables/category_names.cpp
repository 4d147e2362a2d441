#include "lockstep/data/datastores/tables/category_names.h"

#include <algorithm>
#include <iterator>

namespace lockstep {

std::string category_name(const std::string& column, const std::string& text) {
  return column + "=" + text;
}

bool is_category_of(const std::string& name, const std::string& column) {
  return name.starts_with(category_name(column, ""));
}

std::string column_of_category(const std::string& name, const std::vector<std::string>& columns) {
  const auto found = std::ranges::find_if(
      columns, [&](const std::string& column) { return is_category_of(name, column); });
  return found == columns.end() ? "" : *found;
}

std::string text_of_category(const std::string& name, const std::vector<std::string>& columns) {
  const std::string column = column_of_category(name, columns);
  return column.empty() ? name : name.substr(category_name(column, "").size());
}

std::vector<std::string> with_categories(const std::vector<std::string>& columns,
                                         const std::vector<std::string>& texts,
                                         const std::vector<std::string>& names) {
  std::vector<std::string> all;
  for (const std::string& column : columns) {
    const size_t before = all.size();
    if (std::ranges::find(texts, column) != texts.end()) {
      std::ranges::copy_if(names, std::back_inserter(all),
                           [&](const std::string& name) { return is_category_of(name, column); });
    }
    if (all.size() == before) all.push_back(column);
  }
  return all;
}

}  // namespace lockstep
