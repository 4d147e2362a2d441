// A folder on disk for parsers that read folders, of this process alone. It is removed at its end.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <string>

#include "lockstep/base/os/file.h"
#include "tests/fuzz/target.h"

namespace lockstep::fuzz {

class Scratch {
 public:
  Scratch() {
    std::error_code none;
    const bool in_memory = std::filesystem::is_directory("/dev/shm", none);
    path_ = std::string(in_memory ? "/dev/shm" : "/tmp") + "/lockstep-fuzz-XXXXXX";
    if (::mkdtemp(path_.data()) == nullptr) throw InternalError("[fuzz] there is no folder");
  }
  ~Scratch() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  const std::string& path() const { return path_; }
  void empty() const {
    for (const auto& entry : std::filesystem::directory_iterator(path_)) {
      std::filesystem::remove_all(entry.path());
    }
  }
  void write(const std::string& name, std::span<const std::byte> bytes) const {
    local_files().open(join_path(path_, name), false)->append(bytes);
  }

 private:
  std::string path_;
};

}  // namespace lockstep::fuzz
