// What a sweep has found, as a table. Functions are thread-safe.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "lockstep/runs/jobs/sweep_table.h"
#include "lockstep/runs/sweeps/schedule.h"

namespace lockstep {

// A row of the table, with the trial's rank among all.
struct TrialRow {
  int64_t trial = 0, rank = 0;  // rank 0: it has no result yet
  std::string state = {};  // "finished", "pruned", "stopped", "diverged", "unbuildable", "open"
  std::string reason = {};
  int64_t epochs = 0, iterations = 0;        // of the first repeat
  double value = 0, spread = 0;              // NaN if there is none
  std::vector<std::string> parameters = {};  // of each of the options' parameters; "": not used
  std::vector<std::pair<std::string, double>> metrics = {};  // means over the repeats
  std::string receipts = {};  // the chains of the repeats, separated by spaces
};

// All trials that have begun, by number.
std::vector<TrialRow> trial_rows(const SweepSchedule& schedule, const SweepOptions& options);

// trials.csv: a header and a line for each trial. It has no times, hosts or paths, and the same
// bytes for any number of workers.
std::string trials_csv(const SweepSchedule& schedule, const SweepOptions& options,
                       const std::string& metric);

// The share of the variance of the results that each parameter explains by itself, from 0 to 1, of
// the trials' first common budget: the correlation ratio, corrected for the number of groups
// (epsilon squared: Kelley 1935). Numbers are divided into groups of equal size. NaN if there are
// too few trials.
std::vector<std::pair<std::string, double>> parameter_importance(const SweepSchedule& schedule,
                                                                 const SweepOptions& options);

}  // namespace lockstep
