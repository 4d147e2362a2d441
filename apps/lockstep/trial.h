// Trying a job out before it is trained.
#pragma once

#include "lockstep/runs/job_file.h"
#include "lockstep/runs/run.h"

namespace lockstep::command {

// `lockstep train --check`: prints what can be told without training; throws what does not fit.
void check_job(const Job& job, const std::string& initial_model);

// `lockstep train --dry-run`: what a trial found out.
struct Trial {
  TrainingStart start;
  TrainingResult training;
};

// Three iterations, a validation and a checkpoint, in a folder beside options.folder that is gone
// afterwards. Throws what run_job() throws.
Trial try_job(const Job& job, RunOptions options);

// Prints what the whole training would take, in time and memory.
void print_estimate(const Trial& trial);

}  // namespace lockstep::command
