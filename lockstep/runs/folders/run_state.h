// The state of the run in a folder. It is recorded in state.json at every change.
#pragma once

#include <string>

#include "lockstep/base/os/file.h"

namespace lockstep {

enum class RunStatus {
  none,         // the folder holds no run
  running,      // a process works on it now
  interrupted,  // its process ended without recording a state: it was killed, or the power failed
  stopped,      // it was stopped before its end by a request or a limit
  pruned,       // a sweep ended it at a rung, because other trials were better
  failed,       // an error ended it
  finished,
};

struct RunState {
  RunStatus status = RunStatus::none;
  std::string reason = {};  // why it was stopped, pruned or failed; else ""
  std::string time = {};    // when the state was recorded, "2026-11-23T20:23:14Z"; "" if it was not
  int64_t iteration = 0;    // the last finished one at that time; 0 if running or not recorded
};

// "running", "stopped", ...
std::string to_string(RunStatus status);

// Text that follows the name of a folder: "was stopped after iteration 60: max_time is over".
std::string describe(const RunState& state);

// The state of the run in a folder. It is `running` only while a process holds the folder's lock. A
// folder without a recorded state (from an earlier version) is `finished` if it has a model, else
// `interrupted`. The contents of the folder never cause an exception. Thread-safe. `own_lock`: this
// process holds the lock and needs the state before it.
RunState run_state(FileSystem& files, const std::string& folder, bool own_lock = false);

// Records the state, with the current time if it has none. Throws FileError. Only for the process
// that holds the lock.
void write_run_state(FileSystem& files, const std::string& folder, const RunState& state);

// The model file for a path from the user: the path itself, or the model of the run in that folder.
// Throws DataError with the state of the run if the folder has no model.
std::string model_path(FileSystem& files, const std::string& path);

// A note for users of a run's model ("runs/a was stopped after iteration 60: ...; this is its
// network of then"). "" for finished runs and for paths that are not a run's folder.
std::string model_note(FileSystem& files, const std::string& path);

}  // namespace lockstep
