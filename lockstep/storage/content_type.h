// Kinds of contents, as browsers know them.
#pragma once

#include <string>
#include <string_view>

namespace lockstep::storage {

inline constexpr const char* unknown_content = "application/octet-stream";

// The media type of a file by the end of its name: "text/html" for "report.html". unknown_content
// for other names.
std::string content_type_of(std::string_view name);

}  // namespace lockstep::storage
