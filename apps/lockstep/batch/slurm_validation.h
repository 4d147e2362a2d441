// The steps of `lockstep cluster validate` on a cluster that Slurm manages.
#pragma once

#include "apps/lockstep/batch/validation_steps.h"
#include "lockstep/cluster/profiles/cluster_profile.h"

namespace lockstep::command {

// Waits at most `patience` seconds for free nodes. Whatever happens, the job that it submits is
// cancelled and its folder removed. Throws the error of the step that fails.
void validate_slurm(const ClusterProfile& profile, double patience, ValidationSteps& steps);

}  // namespace lockstep::command
