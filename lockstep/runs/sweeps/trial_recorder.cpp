#include "lockstep/runs/sweeps/trial_recorder.h"

#include <exception>
#include <utility>

#include "lockstep/base/os/file.h"
#include "lockstep/runs/store/run_store.h"
#include "lockstep/runs/sweeps/continuation.h"

namespace lockstep {

TrialRecorder::TrialRecorder(std::string store, std::string sweep,
                             std::function<void(const std::string& text)> notice)
    : store_(std::move(store)), sweep_(std::move(sweep)), notice_(std::move(notice)) {}

void TrialRecorder::progress(const TrialProgress& p) {
  // The folder is complete once the training has started.
  if (p.iterations > 0 && running_.emplace(p.trial, p.repeat).second) record(p.trial, p.repeat);
}

void TrialRecorder::result(const TrialResult& r) {
  running_.erase({r.run.trial, r.run.repeat});
  // Trials that cannot be built have no run.
  if (local_files().exists(
          join_path(trial_folder(sweep_, r.run.trial, r.run.repeat), "job.json"))) {
    record(r.run.trial, r.run.repeat);
  }
}

void TrialRecorder::fault(const TrialRun& run, const std::string&) {
  running_.erase({run.trial, run.repeat});
}

void TrialRecorder::record(int64_t trial, int64_t repeat) {
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
