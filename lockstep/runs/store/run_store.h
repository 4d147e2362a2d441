// The run store: an index over the folders of runs in a SQLite database. The folders are complete
// without it, and it can be rebuilt from them.
//
// It lies in a folder of the user's on a local disk: the locks of SQLite do not work on network
// file systems. The schema has a version; a store of an earlier version is migrated when it is
// opened.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "lockstep/runs/store/database.h"
#include "lockstep/runs/store/stored_run.h"

namespace lockstep {

// The folder that LOCKSTEP_HOME names, else lockstep in XDG_DATA_HOME, else
// ~/.local/share/lockstep. "" if the environment names none of them.
std::string default_store_folder();

inline constexpr const char* store_file_name = "runs.sqlite";

// An open store. Several processes may use one store at the same time. Not thread-safe.
class RunStore {
 public:
  // Opens the store in a folder, and makes it if it is missing. Other processes may lock it for up
  // to `wait_seconds`. Throws FileError, Timeout, DataError (damaged) and Unsupported (written by a
  // later version, or on a network file system), each with a hint.
  explicit RunStore(const std::string& folder, double wait_seconds = 10);

  // Records a run, or replaces what is recorded of it: a run with the same folder, or one with the
  // same id whose folder is gone because it was moved. Another run that had the folder before is
  // removed. Returns the number.
  int64_t record(StoredRun run);
  // All runs by number.
  std::vector<StoredRun> runs();
  // The run with a number ("12"), in a folder or at an address, or the only one with a name (see
  // run_name(), with as much of its folder as is given). Throws InvalidArgument if there is none,
  // and if several have the name.
  StoredRun find(const std::string& reference);
  // Changes the user's notes of a run, in its folder too if that exists. Concurrent changes of a
  // run follow each other.
  void change_notes(int64_t number, const std::function<void(RunNotes&)>& change);
  void remove(int64_t number);

 private:
  Database database_;
};

// Sets a damaged store aside, under the name runs.sqlite.damaged-N. Returns the new path, or "" if
// the store is sound, or there is none.
std::string set_damaged_store_aside(const std::string& folder);

}  // namespace lockstep
