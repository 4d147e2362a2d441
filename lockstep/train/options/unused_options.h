// Options that have no effect together with others.
#pragma once

#include <string>
#include <vector>

#include "lockstep/train/options/options.h"

namespace lockstep {

// A sentence for each option that differs from its default and changes nothing, because it belongs
// to another solver, schedule or option: "momentum has no effect: it is for the solver sgdm".
// Thread-safe.
std::vector<std::string> unused_options(const TrainingOptions& options);

}  // namespace lockstep
