#include "lockstep/cluster/slurm/hosts_folder.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

#include "lockstep/base/error.h"
#include "lockstep/base/numeric/random_hex.h"
#include "lockstep/base/os/file.h"
#include "lockstep/base/os/host_name.h"
#include "lockstep/base/os/variable.h"

namespace lockstep {
namespace {

constexpr const char* lock_name = "lock";
constexpr const char* owner_name = "owner";

// The machine, login and Slurm of a pool. Only pools with the same ones clean its folder up: locks
// need not reach other machines, and another Slurm does not know the jobs.
std::string owner_of(const ClusterProfile& profile) {
  return host_name() + " " + profile.login + " " + variable("SLURM_CONF");
}

}  // namespace

std::string hosts_folder_of(const ClusterProfile& profile) {
  std::string folder = profile.folder_for("hosts");
  check_slurm_path(folder);
  return folder;
}

std::string hosts_job_name(const std::string& folder) {
  return "lockstep-hosts-" + std::filesystem::path(folder).filename().string();
}

std::string host_output_name(const std::string& index) { return "host-" + index + ".txt"; }

HostsFolder::HostsFolder(const ClusterProfile& profile) : owner_(owner_of(profile)) {
  const std::string all = hosts_folder_of(profile);
  make_folders(local_files(), all);
  struct stat status;
  if (::chmod(all.c_str(), 0700) != 0 || ::stat(all.c_str(), &status) != 0 ||
      status.st_uid != ::geteuid()) {
    throw FileError("[cluster] the folder " + all + " belongs to another user",
                    "name one of your own in the profile's `folder`");
  }
  path_ = join_path(all, random_hex(2));
  if (::mkdir(path_.c_str(), 0700) != 0) {
    throw FileError("[cluster] cannot make the folder " + path_ + ": " +
                    std::system_category().message(errno));
  }
  lock_ = FileLock::take(file(lock_name));
  if (!lock_) throw FileError("[cluster] " + file(lock_name) + " cannot be locked");
  write_atomically(local_files(), file(owner_name), owner_);
}

std::string HostsFolder::file(const std::string& name) const { return join_path(path_, name); }

void HostsFolder::clean_up_after_others(const Slurm& slurm) const {
  const std::string all = folder_of(path_);
  for (const std::string& name : local_files().list(all)) {
    const std::string folder = join_path(all, name);
    const std::string owned = join_path(folder, owner_name);
    if (!local_files().exists(owned) || read_text(local_files(), owned) != owner_) continue;
    const std::optional<FileLock> lock = local_files().exists(join_path(folder, lock_name))
                                             ? FileLock::take(join_path(folder, lock_name))
                                             : std::nullopt;
    if (!lock) continue;  // its process lives
    slurm.cancel_all(hosts_job_name(folder));
    std::error_code ignored;
    std::filesystem::remove_all(folder, ignored);
  }
}

void HostsFolder::leave(bool whole) noexcept {
  std::error_code ignored;
  std::filesystem::remove(file(hosts_key_name), ignored);
  if (whole) std::filesystem::remove_all(path_, ignored);
  lock_.reset();
}

}  // namespace lockstep
