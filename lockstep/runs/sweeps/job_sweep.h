// The sweep of a job file, in a folder:
//
//   sweep.json          the job file, the options, and the versions of both
//   sweep.jsonl         the record of decisions, results and events (record.h)
//   trials.csv          the table of trials (trial_table.h)
//   trials/7/           the folder of the run of trial 7 (trials/7-2: its second repeat)
//   model.safetensors   the best network, once the sweep has finished
//   confusion.json      its confusion, if labels are learned
//   result.json         the best trial, its test, the importance of the parameters
//   requests/           requests of other processes (request_trial_stop())
//   lock                locked while a process runs the sweep
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/runs/jobs/job_file.h"
#include "lockstep/runs/sweeps/driver.h"
#include "lockstep/runs/sweeps/schedule.h"
#include "lockstep/runs/sweeps/trial_table.h"
#include "lockstep/train/evaluation/evaluation.h"

namespace lockstep {

inline constexpr const char* sweep_job_name = "sweep.json";
inline constexpr const char* trials_name = "trials.csv";

struct JobSweepOptions {
  std::string job;                         // file; "": only to continue a sweep
  std::vector<std::string> settings = {};  // as in read_job()
  std::string folder = {};
  int workers = 0;  // 0: one for each processor, but no more than trials
  // Instead of workers on this machine: hosts and numbers of workers there, as in
  // TrainingOptions::workers. Trials are then trainings of this process, and idle workers join the
  // others' trainings.
  std::vector<std::string> hosts = {};
  std::string host_launch = {}, host_address = {};  // as there
  int64_t host_threads = 0;   // compute threads of each worker there; 0: as the job says
  bool resume = false;        // continue the sweep in the folder, perhaps with more trials
  bool rerun_failed = false;  // run trials again that diverged or could not be built
  bool lend = true;           // threads of idle workers help others
  std::string store = {};     // folder of the run store in which trials are recorded; "": none
  std::vector<SweepObserver*> observers = {};
  std::function<bool()> interrupted = {};
};

// What is known before the first trial.
struct JobSweepStart {
  std::string metric;  // "validation.accuracy"
  bool minimize = false;
  int64_t budget = 0;           // epochs of a complete trial
  int64_t epochs = 0;           // of all trials together, if none fails
  int64_t workers = 0;          // that run trials at once; with hosts: trials at once
  int64_t hosts = 0, lent = 0;  // hosts, and workers there
  SweepOptions options;         // resolved
};

struct JobSweepResult {
  bool finished = false;
  JobSweepStart start;
  std::vector<TrialRow> rows;
  std::vector<std::pair<std::string, double>> importance;
  int64_t best = 0;                   // trial; 0: none succeeded
  std::string job;                    // the absolute path of the job file
  std::vector<std::string> settings;  // of the best, for `lockstep train --set`
  std::string model, folder;          // its model file, and the folder of its run
  std::optional<Evaluation> test;     // of the best, if there are test data
};

// Runs a sweep, or continues one. Options may then have more trials, and a larger max_epochs or
// repeats; the sweep becomes what it would have been with them from the beginning, and nothing that
// is known is computed again. Blocks until it ends. `on_start` is called before the first decision.
// Throws InvalidArgument for options that do not fit, and what run_schedule() throws.
JobSweepResult run_job_sweep(const JobSweepOptions& options,
                             const std::function<void(const JobSweepStart&)>& on_start = {});

// Throws what run_job_sweep() would throw for these options before it makes the folder.
void check_job_sweep(const JobSweepOptions& options);

}  // namespace lockstep
