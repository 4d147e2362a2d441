// The executable of a batch job, as it was at submission. Jobs of one build share one copy, by hard
// links: jobs/executables/DIGEST and executable in each job's folder. The library of CUDA kernels
// is kept next to it in the same way.
#pragma once

#include <string>

namespace lockstep {

struct KeptExecutable {
  std::string path;    // that runs the job
  std::string digest;  // of its contents
};

// Keeps this process's executable for the job in `folder`, one of `jobs_folder`. An executable that
// finds its libraries relative to itself ($ORIGIN) stays where it is. Throws FileError.
KeptExecutable keep_executable(const std::string& jobs_folder, const std::string& folder);

// Removes copies that no job uses, after a job's folder was removed. Never throws.
void remove_unused_executables(const std::string& jobs_folder);

// The digest of this process's executable. Throws FileError.
std::string own_executable_digest();

}  // namespace lockstep
