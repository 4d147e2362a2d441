// Text from outside: file names, class names, what libraries say.
#pragma once

#include <string>
#include <string_view>

namespace lockstep {

// Whether these bytes are text in UTF-8: no overlong forms, no surrogates, nothing above U+10FFFF.
bool is_utf8(std::string_view text);

// The text as it may be shown on a terminal: control characters (of ASCII, and U+0080 to U+009F)
// and bytes that are no UTF-8 become \n, \t, \r or \xNN. What is ordinary text stays as it is.
// Thread-safe, as is_utf8().
std::string printable(std::string_view text);

// The same for a message of several lines: a line feed stays where the next line is indented by two
// spaces, as lists of problems are.
std::string printable_lines(std::string_view text);

}  // namespace lockstep
