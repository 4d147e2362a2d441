// TOML text as a tree with line numbers.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>

namespace lockstep {

struct TomlTree {
  nlohmann::json tree;               // an object
  std::map<std::string, int> lines;  // by JSON pointer ("/network/layers/3"); may be empty
};

// `where` begins every error, such as "[job file] digits.toml". Throws DataError with line and
// column for bad syntax, and InvalidArgument for dates and times, which no field has.
TomlTree parse_toml(const std::string& text, const std::string& where);

}  // namespace lockstep
