// Checks and dry runs of a job before its training.
#pragma once

#include <string>

#include "lockstep/runs/jobs/job_file.h"
#include "lockstep/runs/run.h"
#include "lockstep/train/records/training_start.h"

namespace lockstep::command {

// For `lockstep train --check`: prints what is known without training. Throws an error if the job
// is not consistent.
void check_job(const Job& job, const std::string& initial_model);

// The classes of the training images in order, with their numbers of images and their weights:
// "cat (800), dog (750, weight 2), eel (20)".
std::string classes_text(const JobPlan& plan);

// The result of `lockstep train --dry-run`.
struct DryRun {
  TrainingStart start;
  TrainingResult training;
};

// Runs three iterations, a validation and a checkpoint in a temporary folder next to
// options.folder. Throws what run_job() throws.
DryRun dry_run(const Job& job, RunOptions options);

// Prints the estimated time and memory of the whole training.
void print_estimate(const DryRun& of);

}  // namespace lockstep::command
