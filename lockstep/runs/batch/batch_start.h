// Starts the processes of batch jobs, with what was recorded at submission.
#pragma once

#include <string>

#include "lockstep/runs/batch/batch_job.h"

namespace lockstep {

// The first argument of a process that runs a function; the second is the job's folder.
inline constexpr const char* batch_argument = "--lockstep-batch";

// Records this process's environment in the job's folder, without variables that may be
// credentials: those come from the process that starts the job.
void record_batch_environment(const BatchJob& job);

// Starts the process of a job on this machine, and returns when it holds the job's lock; or gives
// the job to its cluster. Throws Error if it does not start.
void start_batch_job(const BatchJob& job);

// The script that Slurm would get for a job, with NUMBER where its number will stand. The request
// must name the profile of a cluster that Slurm manages.
std::string batch_script_for(const BatchRequest& request);

}  // namespace lockstep
