// When a training ends.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/train/trainer.h"

namespace lockstep {

// After which iteration patience is at an end: `patience` validations in a row had no strictly
// smaller loss than the smallest before (NaN is none). 0: it is not, or `patience` is 0.
// Thread-safe.
int64_t patience_ends(const std::vector<ValidationRecord>& validations, int64_t patience);

// Throws InvalidArgument where the options would have ended a training before `iteration`, after
// which a checkpoint in `folder` goes on with these validations. Thread-safe.
void check_end_not_passed(const TrainingOptions& options, int64_t iterations_per_epoch,
                          int64_t iteration, const std::vector<ValidationRecord>& validations,
                          const std::string& folder);

}  // namespace lockstep
