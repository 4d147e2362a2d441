// The process that works on a batch job.
#pragma once

#include <cstdint>
#include <functional>

#include "lockstep/runs/batch/batch_job.h"

namespace lockstep {

// What the process does with its job. The functions are called by run_batch_job(): `request_stop`
// by a thread of its own, the others by the calling thread.
struct BatchWork {
  // Trains into job.run_folder(), continuing a run that is there. Returns the exit code of
  // `lockstep train`. Its exceptions end the job as failed.
  std::function<int(const BatchJob& job)> train;
  // Whether the process was asked to end (by a signal).
  std::function<bool()> stop_wanted;
  // Asks the training to end after a checkpoint; called a second time, to end at once.
  std::function<void()> request_stop;
  // A descriptor that gets a byte as soon as the process holds the job's lock, or -1.
  int ready = -1;
};

// Works on a job until it has ended: waits for the jobs before it, trains, and records the states.
// If the job is cancelled, its training gets 120 seconds to end. Returns the training's exit code.
// Throws what `train` throws, and InvalidArgument if another process works on the job.
int run_batch_job(int64_t number, const BatchWork& work);

}  // namespace lockstep
