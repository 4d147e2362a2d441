// Files of a folder that are not read, by their extensions.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "lockstep/base/counted.h"

namespace lockstep {

class OtherFiles {
 public:
  void add(const std::string& file) {
    const size_t dot = file.find_last_of('.');
    ++counts_[dot == std::string::npos ? "" : file.substr(dot)];
  }
  // A notice for each extension: "2 files of data are left out: .jsonl".
  std::vector<std::string> notices(const std::string& folder) const {
    std::vector<std::string> all;
    for (const auto& [extension, count] : counts_) {
      all.push_back(counted(count, "file") + " of " + folder + (count == 1 ? " is" : " are") +
                    " left out: " + named(extension));
    }
    return all;
  }
  // ": 2 .jsonl, 1 without an extension", or "".
  std::string counts() const {
    std::string text;
    for (const auto& [extension, count] : counts_) {
      text += (text.empty() ? ": " : ", ") + std::to_string(count) + " " + named(extension);
    }
    return text;
  }
  bool has(const std::string& extension) const { return counts_.contains(extension); }

 private:
  static std::string named(const std::string& extension) {
    return extension.empty() ? "without an extension" : extension;
  }
  std::map<std::string, int64_t> counts_;
};

}  // namespace lockstep
