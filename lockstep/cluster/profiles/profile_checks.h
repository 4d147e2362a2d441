// What the fields of a cluster profile may be.
#pragma once

#include <string>

#include "lockstep/cluster/profiles/cluster_profile.h"

namespace lockstep {

// Throws InvalidArgument for a value that cannot work, with `where` and the field's name. Values of
// variables are not repeated.
void check_cluster_profile(const ClusterProfile& profile, const std::string& where);

}  // namespace lockstep
