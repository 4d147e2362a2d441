#include "lockstep/base/os/variable.h"

#include <unistd.h>

#include <cstdlib>

namespace lockstep {

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value ? value : "";
}

std::vector<std::pair<std::string, std::string>> variables_with(std::string_view prefix) {
  std::vector<std::pair<std::string, std::string>> all;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    if (text.starts_with(prefix) && text.find('=') != std::string_view::npos) {
      all.push_back(parse_variable(*entry));
    }
  }
  return all;
}

std::pair<std::string, std::string> parse_variable(const std::string& text) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos) return {text, ""};
  return {text.substr(0, equals), text.substr(equals + 1)};
}

}  // namespace lockstep
