// The conditions that end a training.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/train/records/observer.h"

namespace lockstep {

struct TrainingOptions;
struct ValidationOptions;

// Returns the iteration after which options.patience validations in a row had no objective that was
// better than the best one before them (NaN never is). 0 if there is none or the patience is 0.
// Thread-safe.
int64_t patience_ends(const std::vector<ValidationRecord>& validations,
                      const ValidationOptions& options);

// Throws InvalidArgument if the options would have ended a training before `iteration`, with which
// a checkpoint in `folder` and these validations continues. Thread-safe.
void check_end_not_passed(const TrainingOptions& options, int64_t iterations_per_epoch,
                          int64_t iteration, const std::vector<ValidationRecord>& validations,
                          const std::string& folder);

}  // namespace lockstep
