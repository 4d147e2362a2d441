// The process that works on a batch job.
#pragma once

#include <functional>
#include <string>

#include "lockstep/runs/batch/batch_job.h"

namespace lockstep {

// What the process does with its job. The functions are called by run_batch_job(): `request_stop`
// by a thread of its own, the others by the calling thread.
struct BatchWork {
  // Works into job.run_folder(), continuing what is there. Returns 0, or the exit code of
  // `lockstep train` or `lockstep sweep`: 130 if it was stopped. Its exceptions end the job as
  // failed.
  std::function<int(const BatchJob& job)> work;
  // Whether the process was asked to end (by a signal).
  std::function<bool()> stop_wanted;
  // Asks the work to end after a checkpoint; called a second time, to end at once.
  std::function<void()> request_stop;
  // A descriptor that gets a byte as soon as the process holds the job's lock, or -1.
  int ready = -1;
};

// Works on the job in a folder until it has ended: waits for the jobs before it, does its work, and
// records the states. If the job is cancelled, its work gets 120 seconds to end. Returns the work's
// exit code. Throws what `work` throws, and InvalidArgument if another process works on the job, or
// if this executable is not that of its submission.
int run_batch_job(const std::string& folder, const BatchWork& work);

}  // namespace lockstep
