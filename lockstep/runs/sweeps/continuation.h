// The beginning of a sweep in a folder, or its continuation from the record there.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "lockstep/base/os/file_lock.h"
#include "lockstep/runs/sweeps/driver.h"
#include "lockstep/runs/sweeps/schedule.h"

namespace lockstep {

// Locks the folder of a sweep as long as this object lives, or the process. Throws FileError, and
// InvalidArgument if another process has it.
class SweepLock {
 public:
  explicit SweepLock(const std::string& folder);

 private:
  std::optional<FileLock> lock_;
};

// The folder of a run, below the sweep's: trials/7, or trials/7-2 for the second repeat.
std::string trial_folder(const std::string& sweep, int64_t trial, int64_t repeat);

struct SweepContinuation {
  std::string folder, metric;
  const SweepOptions& options;
  int64_t budget = 1;
  bool extended = false;      // the options have changed
  bool rerun_failed = false;  // forget the results of trials that diverged or could not be built
};

// Adds the results of the record to an empty schedule, and what else it holds to the setup. Writes
// the first line of a new record, else a line about the continuation. Throws FileError and
// DataError.
void continue_sweep(const SweepContinuation& how, SweepSchedule& schedule, SweepSetup& setup);

}  // namespace lockstep
