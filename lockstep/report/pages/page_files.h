// The scripts and styles of pages, embedded in the library at build time (see
// cmake/PageFiles.cmake).
#pragma once

#include <string_view>

namespace lockstep {

// The contents of a file of lockstep/report/web, or of dygraphs. Throws InvalidArgument for an
// unknown name. Thread-safe.
std::string_view page_file(std::string_view name);

}  // namespace lockstep
