// How a stopped training goes on: what its folder knows, and the command to give.
#pragma once

#include <string>

#include "apps/lockstep/train.h"

namespace lockstep::command {

// The job of the run in a folder, with all its options, as a job file. Throws InvalidArgument if
// there is none. `out` is what the user calls the folder.
std::string job_of_run(const std::string& folder, const std::string& out);

// The value of --worker-load: "3,1".
std::string loads_of(const TrainArguments& arguments);

// The command that continues the run to its end. If max_time has ended the run, the command removes
// that limit.
std::string how_to_go_on(const TrainArguments& arguments, const std::string& folder,
                         bool out_of_time);

}  // namespace lockstep::command
