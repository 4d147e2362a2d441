#include "lockstep/base/os/own_executable.h"

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

std::string cuda_library_of(const std::string& executable) {
  const std::filesystem::path folder = std::filesystem::path(executable).parent_path();
  std::error_code error;
  for (const auto& place : {folder, folder.parent_path() / "lib"}) {
    const auto path = place / cuda_library_name;
    if (std::filesystem::exists(path, error)) return path.string();
  }
  return "";
}

}  // namespace lockstep
