// The text of a job file as a tree with line numbers, and changes to it from the command line.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lockstep/base/os/file.h"
#include "lockstep/base/toml/toml_tree.h"

namespace lockstep {

using JobSource = TomlTree;  // JSON files have no lines

// Reads TOML, or JSON if the name ends in .json. Throws FileError, DataError with line and column
// for bad syntax, and InvalidArgument for dates and times.
JobSource read_job_source(FileSystem& files, const std::string& path);
// Parses TOML text. Errors name it `path`.
JobSource parse_job_source(const std::string& text, const std::string& path);

// Sets the field at a key. `path_of` returns the key's path: dotted, with the field's table, and
// with a number for an entry of a list ("network.layers.2.filters"). Returns the JSON pointer of
// the field. Throws InvalidArgument.
std::string set_field(JobSource& source, const std::string& key, nlohmann::json value,
                      const std::function<std::string(const std::string& key)>& path_of);

// Applies "KEY=VALUE" as set_field(). The value is parsed as TOML, or taken as text if it is not
// valid TOML. Returns the JSON pointer of the field. Throws InvalidArgument.
std::string apply_setting(JobSource& source, const std::string& setting,
                          const std::function<std::string(const std::string& key)>& path_of);

}  // namespace lockstep
