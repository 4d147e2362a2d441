// The process that works on a batch job of the command.
#pragma once

#include <string>

namespace lockstep::command {

// Works on the training or sweep in a job's folder, as run_batch_job() does. `ready` is a
// descriptor that gets a byte once the job is locked, or -1. Returns the exit code.
int work_on_batch_job(const std::string& folder, int ready);

}  // namespace lockstep::command
