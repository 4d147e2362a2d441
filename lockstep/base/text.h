// Text from external sources: file names, class names, messages of libraries.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// Returns whether the bytes are valid UTF-8: no overlong forms, no surrogates, nothing above
// U+10FFFF.
bool is_utf8(std::string_view text);

// Returns the text in a form that is safe on a terminal. Control characters (of ASCII, and U+0080
// to U+009F) and bytes that are not valid UTF-8 become \n, \t, \r or \xNN. Other text is unchanged.
// Both functions are thread-safe.
std::string printable(std::string_view text);

// The same for a message of several lines. A line feed is kept if the next line is indented by two
// spaces, as in lists of problems.
std::string printable_lines(std::string_view text);

// "a, b and 3 more": the first `most` items, and the number of the others.
std::string list_of_some(const std::vector<std::string>& items, size_t most);
// "`a`, `b` and 3 more": the same of names that are printable().
std::string list_of_some_names(const std::vector<std::string>& names, size_t most);

}  // namespace lockstep
