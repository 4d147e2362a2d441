// Runs the folds of a cross-validation at once, on worker processes.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "lockstep/runs/folds/fold_run.h"
#include "lockstep/runs/jobs/job_file.h"

namespace lockstep {

struct ConcurrentFolds {
  std::vector<Job> jobs;      // of the folds, in order
  std::string folder, store;  // of the cross-validation; of the run store, or ""
  int workers = 1;            // folds at once
  // Receives messages of folds, in the thread that calls run_folds(). Messages of one fold arrive
  // in order.
  std::function<void(const FoldMessage&)> tell = {};
  std::function<bool()> interrupted = {};  // asked several times a second
};

struct FoldsEnd {
  std::vector<FoldValues> values;  // of the folds before the one that was stopped
  int stopped = 0;                 // the first fold, from 1, that was stopped; 0: none was
};

// An error of a fold, with its number: "[cross-validate] fold 2: ...".
[[noreturn]] void throw_of_fold(int fold, const std::string& what, const std::string& hint);

// Runs all folds, or continues them. A fold whose worker is lost is continued by another one. If a
// fold fails or is stopped, earlier ones are finished and later ones save their state, so the
// outcome is that of one fold after the other. Processors without a fold help the others, unless
// the jobs name their threads. Blocks until all have ended. Throws Error with the number of the
// first fold that failed, and what Pool throws.
FoldsEnd run_folds(const ConcurrentFolds& folds);

}  // namespace lockstep
