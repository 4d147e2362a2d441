// Cluster profiles: how trainings, pools and batch jobs reach a cluster. A profile is a TOML file
// in the user's folder (LOCKSTEP_HOME/clusters; otherwise XDG_CONFIG_HOME/lockstep/clusters or
// ~/.config/lockstep/clusters), named after the profile. The profile "local" is this machine; it
// exists without a file. Functions are safe to call from several processes.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/fields.h"

namespace lockstep {

inline constexpr const char* local_cluster_name = "local";
// Names no profile: where a profile is read, it stands for default_cluster_profile(). So a program
// with Pool({.cluster = "default"}) runs on the cluster that its user has chosen.
inline constexpr const char* default_cluster_word = "default";

struct ClusterProfile {
  std::string scheduler = "slurm";  // "slurm", or "local": this machine
  // "user@host": the login node, where the scheduler's commands run by ssh; "": they run here.
  std::string login;
  std::string partition;             // "": the scheduler's default
  int64_t workers = 1;               // worker processes of a job, on all nodes together
  int64_t nodes = 1;                 // that a job gets; each has the same number of workers
  int64_t threads = 1;               // compute threads of each worker
  std::string device = "cpu";        // of the workers: "cpu", "cuda" or "auto"
  std::string time_limit;            // as sbatch --time takes it; "": the partition's limit
  std::vector<std::string> options;  // more options of sbatch
  // "NAME=VALUE": variables of the workers. Slurm stores them, so credentials are refused.
  std::vector<std::string> environment;
  std::vector<std::string> attach;  // files and folders that every batch job and every pool gets
  // The executable on the nodes: "shared" (this one, under its path), "shipped" (a copy of it in
  // the job's folder), or a path there.
  std::string executable = "shared";
  // On the cluster, shared by all nodes: holds batch jobs in `jobs`, and the keys and output of
  // hosts in `hosts`. "": the user's folder.
  std::string folder;
  // Address or network interface at which the nodes reach this machine. "": the loopback alone, in
  // batch jobs by route.
  std::string address;
  std::string ports;  // range of ports for workers and this process, "20000-20100"; "": any

  void visit(FieldVisitor& v);

  // `environment` by name and value.
  std::vector<std::pair<std::string, std::string>> variables() const;
  // Throws InvalidArgument if the workers cannot be divided among the nodes.
  int64_t workers_per_node() const;
  // The folder `name` in `folder`, or among the user's files if that is "".
  std::string folder_for(const std::string& name) const;
};

// The folder that holds the profiles. Throws InvalidArgument if no variable names a folder.
std::string cluster_profiles_folder();

// The names of all profiles, sorted; "local" is always one of them.
std::vector<std::string> cluster_profile_names();

// Reads a profile. A name that ends in ".toml" is the path of a profile's file instead. Throws
// InvalidArgument if there is none of this name (the hint is the nearest name) or a field is wrong,
// DataError for bad syntax.
ClusterProfile read_cluster_profile(const std::string& name);

// The same for the path of a profile's file, whatever its ending.
ClusterProfile read_cluster_profile_file(const std::string& path);

// "lab" for "lab" and "folder/lab.toml", and for "default" if lab is the default.
std::string cluster_profile_name_of(const std::string& name_or_path);

// Writes a new profile. Throws InvalidArgument for a name that is not a plain file name, for wrong
// fields, and if the profile exists. "local" replaces the profile that exists without a file.
void add_cluster_profile(const std::string& name, const ClusterProfile& profile);

// Removes a profile's file; "local" then is as it was at first. If the profile was the default,
// "local" becomes the default. Throws InvalidArgument if there is none of this name.
void remove_cluster_profile(const std::string& name);

// Writes the profile to a new file. Throws FileError if the file exists.
void export_cluster_profile(const std::string& name, const std::string& path);

// The profile that is used where no other is named: "local" until another is chosen. It may have
// been removed; reading it then says so.
std::string default_cluster_profile();
// Throws as read_cluster_profile() does.
void set_default_cluster_profile(const std::string& name);

// The text of a profile's file: the fields that differ from the defaults, and `workers`.
std::string cluster_profile_text(const ClusterProfile& profile);

// The fields of a profile with their defaults and meanings.
std::vector<FieldInfo> cluster_profile_fields();

}  // namespace lockstep
