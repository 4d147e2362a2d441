// The executable that runs on a cluster's nodes.
#pragma once

#include <string>

#include "lockstep/cluster/profiles/cluster_profile.h"

namespace lockstep {

// Its path there, by the profile's `executable`. A shipped one lies in `folder`, which the nodes
// share.
std::string node_executable(const ClusterProfile& profile, const std::string& folder);

// Copies this executable, and the library of CUDA kernels that was installed with it, to that path
// if the profile has it shipped. Throws FileError.
void ship_executable(const ClusterProfile& profile, const std::string& folder);

}  // namespace lockstep
