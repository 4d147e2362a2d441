// The text of a job file as a tree, with the lines of its parts and the user's changes applied.
#pragma once

#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lockstep/base/file.h"

namespace lockstep {

struct JobSource {
  nlohmann::json tree;               // an object
  std::map<std::string, int> lines;  // by JSON pointer ("/network/layers/3"); empty for JSON files
};

// Reads TOML, or JSON where the name ends in .json. Throws FileError, and DataError with line and
// column for bad syntax.
JobSource read_job_source(FileSystem& files, const std::string& path);
// The same from a text in TOML that errors call `path`.
JobSource parse_job_source(const std::string& text, const std::string& path);

// Applies "KEY=VALUE" with a dotted key; one without dots goes to the table `home_of` names for it.
// A value is read as TOML, or as text where it is none. Gives the JSON pointer of what it set.
// Throws InvalidArgument.
std::string apply_setting(JobSource& source, const std::string& setting,
                          const std::function<std::string(const std::string& key)>& home_of);

}  // namespace lockstep
