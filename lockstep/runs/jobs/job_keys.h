// The keys of --set and of sweeps: which field of a job file each of them means.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "lockstep/runs/jobs/expression.h"

namespace lockstep {

// The values of [variables] of a job file. Throws InvalidArgument.
Variables job_variables(const nlohmann::json& tree);

// The dotted path of the field that a key means. A key without dots gets its table:
// max_epochs -> training.max_epochs. A layer's name becomes its index, also inside groups:
// network.layers.conv.filters -> network.layers.2.filters, where the names are those of the job
// with all groups repeated, as `lockstep runs show` prints them, and of the file. Throws
// InvalidArgument for unknown and ambiguous keys, and for one repetition of several. Thread-safe.
std::string path_of_key(const nlohmann::json& tree, const std::string& key);

}  // namespace lockstep
