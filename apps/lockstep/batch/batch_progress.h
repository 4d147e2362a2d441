// The action progress of `lockstep jobs`.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep::command {

struct BatchProgressOptions {
  bool json = false;
  bool follow = false;  // a line for each step, until the job ends
};

// Prints the newest iteration and validation of a training, or the trials of a sweep, by its number
// in a folder of jobs. Returns the exit code.
int show_batch_progress(const std::string& jobs_folder, int64_t number,
                        const BatchProgressOptions& options);

}  // namespace lockstep::command
