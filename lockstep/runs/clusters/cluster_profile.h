// Cluster profiles: how batch jobs reach a cluster. A profile is a TOML file in the user's folder
// (LOCKSTEP_HOME/clusters; otherwise XDG_CONFIG_HOME/lockstep/clusters or
// ~/.config/lockstep/clusters), named after the profile. Functions are safe to call from several
// processes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/base/fields.h"

namespace lockstep {

struct ClusterProfile {
  std::string scheduler = "slurm";
  std::string partition;             // "": the scheduler's default
  int64_t nodes = 1;                 // that a job gets
  int64_t workers_per_node = 1;      // worker processes on each node
  int64_t threads = 1;               // compute threads of each worker
  std::string time_limit;            // as sbatch --time takes it; "": the partition's limit
  std::string address;               // TrainingOptions' host_address
  std::vector<std::string> options;  // more options of sbatch

  void visit(FieldVisitor& v);
};

// The folder that holds the profiles. Throws InvalidArgument if no variable names a place.
std::string cluster_profiles_folder();

// The names of all profiles, sorted.
std::vector<std::string> cluster_profile_names();

// Reads a profile. Throws InvalidArgument if there is none of this name (the hint is the nearest
// name) or a field is wrong, DataError for bad syntax.
ClusterProfile read_cluster_profile(const std::string& name);

// Writes a new profile. Throws InvalidArgument for a name that is no plain file name, for wrong
// fields, and if the profile exists.
void add_cluster_profile(const std::string& name, const ClusterProfile& profile);

// Throws InvalidArgument if there is none of this name.
void remove_cluster_profile(const std::string& name);

// The text of a profile's file.
std::string cluster_profile_text(const ClusterProfile& profile);

}  // namespace lockstep
