#include "lockstep/runs/sweeps/trial_recorder.h"

#include <exception>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/os/file.h"
#include "lockstep/base/os/file_lock.h"
#include "lockstep/runs/folders/run_folder.h"
#include "lockstep/runs/folders/run_state.h"
#include "lockstep/runs/store/run_store.h"
#include "lockstep/runs/sweeps/continuation.h"

namespace lockstep {

TrialRecorder::TrialRecorder(std::string store, std::string sweep,
                             std::function<void(const std::string& text)> notice)
    : store_(std::move(store)), sweep_(std::move(sweep)), notice_(std::move(notice)) {}

// The decisions of a sweep that continues come again, so states are written once the sweep has
// gone on, even if it was interrupted before.
void TrialRecorder::decision(int64_t, const SweepDecision& what) {
  for (const int64_t trial : what.pruned) {
    for (int64_t repeat = 0; has_run(trial, repeat); ++repeat) {
      if (mark_pruned(trial_folder(sweep_, trial, repeat), what.what)) record(trial, repeat);
    }
  }
}

void TrialRecorder::progress(const TrialProgress& p) {
  // The folder is complete once the training has started.
  if (p.iterations > 0 && running_.emplace(p.trial, p.repeat).second) record(p.trial, p.repeat);
}

void TrialRecorder::result(const TrialResult& r) {
  running_.erase({r.run.trial, r.run.repeat});
  // Trials that cannot be built have no run.
  if (has_run(r.run.trial, r.run.repeat)) record(r.run.trial, r.run.repeat);
}

void TrialRecorder::fault(const TrialRun& run, const std::string&) {
  running_.erase({run.trial, run.repeat});
}

bool TrialRecorder::has_run(int64_t trial, int64_t repeat) const {
  return local_files().exists(join_path(trial_folder(sweep_, trial, repeat), "job.json"));
}

bool TrialRecorder::mark_pruned(const std::string& folder, const std::string& what) {
  try {
    const auto lock = FileLock::take(join_path(folder, run_lock_name));
    RunState state = run_state(local_files(), folder, true);
    if (!lock || state.status != RunStatus::stopped) return false;
    state.status = RunStatus::pruned;
    state.reason = "others were better at " + what;
    state.time = {};
    write_run_state(local_files(), folder, state);
    return true;
  } catch (const Error& error) {
    if (std::exchange(told_of_folder_, true)) return false;
    notice_(std::string("the state of a pruned trial is not recorded: ") + error.what());
  }
  return false;
}

void TrialRecorder::record(int64_t trial, int64_t repeat) {
  if (store_.empty()) return;
  constexpr double wait_seconds = 2;  // the sweep does not wait longer for other processes
  try {
    RunStore(store_, wait_seconds)
        .record(read_stored_run(local_files(), trial_folder(sweep_, trial, repeat)));
  } catch (const std::exception& error) {
    if (std::exchange(told_, true)) return;
    notice_(std::string("trials of this sweep are not recorded in the run store: ") + error.what());
  }
}

}  // namespace lockstep
