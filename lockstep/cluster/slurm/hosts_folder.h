// The folder of a pool whose hosts Slurm starts: key, script, output of the hosts, and copies of
// files. The nodes share it, and other users cannot read it. A lock in it shows that the pool's
// process lives.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "lockstep/base/os/file_lock.h"
#include "lockstep/cluster/profiles/cluster_profile.h"
#include "lockstep/cluster/slurm/slurm.h"

namespace lockstep {

// The folder that holds the folders of the profile's pools. Throws InvalidArgument if Slurm cannot
// use its path.
std::string hosts_folder_of(const ClusterProfile& profile);
// The name of a pool's jobs in Slurm, which ends with the name of the pool's folder.
std::string hosts_job_name(const std::string& folder);

class HostsFolder {
 public:
  // Makes a new one. Throws FileError if it cannot be made, or if the folder that would hold it
  // belongs to another user.
  explicit HostsFolder(const ClusterProfile& profile);

  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const;

  // Cancels the jobs of pools whose process was killed, with the same user, machine, login and
  // Slurm, and removes their folders. Throws what Slurm's functions throw, and FileError.
  void clean_up_after_others(const Slurm& slurm) const;

  // Releases the lock. With `whole` the folder is removed; else only its key, and another pool
  // cleans up. Never throws.
  void leave(bool whole) noexcept;

 private:
  std::string path_, owner_;
  std::optional<FileLock> lock_;
};

// Names of its files.
inline constexpr const char* hosts_key_name = "key";
inline constexpr const char* hosts_script_name = "hosts.sh";
// "host-2.txt": the output of a host, by its index.
std::string host_output_name(const std::string& index);

}  // namespace lockstep
