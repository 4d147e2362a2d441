// Trying a job out before it is trained.
#pragma once

#include "lockstep/runs/job_file.h"
#include "lockstep/runs/run.h"

namespace lockstep::command {

// `lockstep train --check`: everything that can be told without training. Gives the exit code.
int check_job(const Job& job);

// `lockstep train --dry-run`: three iterations, a validation and a checkpoint in a folder beside
// options.folder that is removed again; then what the whole training would take.
int dry_run(const Job& job, RunOptions options);

}  // namespace lockstep::command
