#include "lockstep/base/os/own_executable.h"

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <system_error>

namespace lockstep {

std::string own_executable() {
  std::error_code none;
  std::string path = std::filesystem::read_symlink(own_executable_file, none).string();
  constexpr std::string_view gone = " (deleted)";
  if (path.ends_with(gone)) path.resize(path.size() - gone.size());
  return path;
}

std::vector<std::string> library_folders_of(const std::string& executable) {
  const std::filesystem::path folder = std::filesystem::path(executable).parent_path();
  std::vector<std::string> all;
  for (const auto& path :
       {folder, folder.parent_path() / "lib", folder.parent_path() / LOCKSTEP_LIBRARY_FOLDER}) {
    if (std::find(all.begin(), all.end(), path.string()) == all.end()) {
      all.push_back(path.string());
    }
  }
  return all;
}

std::string cuda_library_of(const std::string& executable) {
  std::error_code error;
  for (const std::string& folder : library_folders_of(executable)) {
    const auto path = std::filesystem::path(folder) / cuda_library_name;
    if (std::filesystem::exists(path, error)) return path.string();
  }
  return "";
}

}  // namespace lockstep
