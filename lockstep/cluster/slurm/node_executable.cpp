#include "lockstep/cluster/slurm/node_executable.h"

#include <filesystem>
#include <system_error>

#include "lockstep/base/error.h"
#include "lockstep/base/os/file.h"
#include "lockstep/base/os/own_executable.h"

namespace lockstep {

std::string node_executable(const ClusterProfile& profile, const std::string& folder) {
  if (profile.executable == "shared") return own_executable();
  if (profile.executable == "shipped") return join_path(folder, "lockstep");
  return profile.executable;
}

void ship_executable(const ClusterProfile& profile, const std::string& folder) {
  if (profile.executable != "shipped") return;
  const auto copy = [](const std::string& from, const std::string& to) {
    std::error_code error;
    std::filesystem::copy_file(from, to, error);
    if (error)
      throw FileError("[cluster] cannot copy " + from + " to " + to + ": " + error.message());
  };
  copy(own_executable_file, node_executable(profile, folder));
  if (const std::string library = cuda_library_of(own_executable()); !library.empty()) {
    copy(library, join_path(folder, cuda_library_name));
  }
}

}  // namespace lockstep
