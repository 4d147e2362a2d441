// A run of a trial of a job file's sweep, on a worker.
#pragma once

#include <string>

#include "lockstep/runs/jobs/job_file.h"
#include "lockstep/runs/sweeps/driver.h"

namespace lockstep {

// The same for all trials of a sweep.
struct JobTrials {
  std::string file, tree;  // JobText
  std::string folder;      // of the sweep
  std::string metric;      // "accuracy", "loss" or a metric of the job

  JobText text() const { return {file, tree}; }

  template <class Archive>
  void serialize(Archive& archive) {
    archive(file, tree, folder, metric);
  }
};

// "accuracy" as in `validation.accuracy`: whether larger values are better.
bool larger_is_better(const std::string& metric);

// The job of a trial. Throws what job_of() throws.
Job trial_job(const JobTrials& all, const TrialParameters& parameters, int64_t repeat);

// Trains a trial up to its budget of epochs, from its last checkpoint on. Throws errors of the
// machine; those of the trial are in the report. Throws InvalidArgument if there is no validation
// until then.
TrialReport run_job_trial(const JobTrials& all, const TrialTask& task,
                          const QueueSender<TrialProgress>& progress,
                          const QueueReceiver<int64_t>& orders);

}  // namespace lockstep
