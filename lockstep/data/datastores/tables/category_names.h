// Names of the features and targets that a column of texts gives: `column=text`, 1 in rows with
// this text and otherwise 0. All functions are thread-safe.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace lockstep {

// Different texts of a column, at most.
inline constexpr size_t kMostCategories = 1000;

std::string category_name(const std::string& column, const std::string& text);
// Whether a name is `column=text` for some text.
bool is_category_of(const std::string& name, const std::string& column);
// The column among `columns` of which a name is `column=text`, or ""; and its text, else the name.
std::string column_of_category(const std::string& name, const std::vector<std::string>& columns);
std::string text_of_category(const std::string& name, const std::vector<std::string>& columns);

// `columns`, in which those that are among `texts` are replaced by their names `column=text` among
// `names`, in the order of these. A column without such names stays.
std::vector<std::string> with_categories(const std::vector<std::string>& columns,
                                         const std::vector<std::string>& texts,
                                         const std::vector<std::string>& names);

}  // namespace lockstep
