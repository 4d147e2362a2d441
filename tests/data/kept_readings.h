// A cache folder for tests of readings that are kept.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "tests/data/support.h"

namespace lockstep::testing {

// While it exists, every reading is kept (data/batches/reading_record.h), in a temporary folder.
class KeptReadings {
 public:
  KeptReadings() {
    for (Variable& v : variables_) {
      if (const char* const value = getenv(v.name)) v.before = value;
    }
    setenv(variables_[0].name, folder_.path.c_str(), 1);
    setenv(variables_[1].name, "0", 1);
  }
  ~KeptReadings() {
    for (const Variable& v : variables_) {
      v.before ? setenv(v.name, v.before->c_str(), 1) : unsetenv(v.name);
    }
  }
  KeptReadings(const KeptReadings&) = delete;
  KeptReadings& operator=(const KeptReadings&) = delete;

  std::vector<std::filesystem::path> records() const {
    const auto folder = std::filesystem::path(folder_.path) / "lockstep" / "images";
    if (!std::filesystem::exists(folder)) return {};
    return {std::filesystem::directory_iterator(folder), {}};
  }
  int64_t size() const { return std::ssize(records()); }

 private:
  struct Variable {
    const char* name;
    std::optional<std::string> before = {};
  };
  TemporaryFolder folder_;
  std::vector<Variable> variables_{{"XDG_CACHE_HOME"}, {"LOCKSTEP_KEPT_READING_SECONDS"}};
};

}  // namespace lockstep::testing
