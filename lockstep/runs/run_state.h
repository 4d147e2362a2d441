// What became of the run in a folder: its file state.json says so, written whenever it changes.
#pragma once

#include <string>

#include "lockstep/base/file.h"

namespace lockstep {

enum class RunStatus {
  none,         // the folder holds no run
  running,      // a process works on it now
  interrupted,  // its process ended without a word: it was killed, or the power went
  stopped,      // it was asked to stop before its end
  failed,       // an error ended it
  finished,
};

struct RunState {
  RunStatus status = RunStatus::none;
  std::string reason = {};  // why it was stopped or failed; "" for others
  std::string time = {};    // when that was noted, "2026-11-23T20:23:14Z"; "" where it was not
  int64_t iteration = 0;    // the last finished one then; 0 while it runs or where it was not noted
};

// "running", "stopped", ...
std::string to_string(RunStatus status);

// For messages, behind the name of a folder: "was stopped after iteration 60: max_time is over".
std::string describe(const RunState& state);

// Of the run in a folder. `running` is said only while a process holds the folder's lock. A folder
// whose state was not noted, as earlier versions leave it, counts as finished where it has a model,
// as interrupted otherwise. Never throws for what is in the folder; thread-safe. `own_lock`: this
// process holds the lock and asks what was there before.
RunState run_state(FileSystem& files, const std::string& folder, bool own_lock = false);

// Notes the state, with the time of this call where it has none. Throws FileError. For the process
// that holds the lock alone.
void write_run_state(FileSystem& files, const std::string& folder, const RunState& state);

// The file to read where a user names a model: the path itself, or the model of the run in that
// folder. Throws DataError, with what became of the run, where the folder has no model.
std::string model_path(FileSystem& files, const std::string& path);

// What a reader of a run's model should know ("runs/a was stopped after iteration 60: ...; this is
// its network of then"); "" for finished runs, and for what is no folder of a run.
std::string model_note(FileSystem& files, const std::string& path);

}  // namespace lockstep
