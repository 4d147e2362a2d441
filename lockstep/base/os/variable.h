// Environment variables.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {

// Functions are thread-safe while the environment does not change.

// The value of a variable of this process; "" if it is not set.
std::string variable(const char* name);

// The variables of this process whose names begin with `prefix`, by name and value.
std::vector<std::pair<std::string, std::string>> variables_with(std::string_view prefix);

// Name and value of "NAME=VALUE". Without "=" the value is "".
std::pair<std::string, std::string> parse_variable(const std::string& text);

}  // namespace lockstep
