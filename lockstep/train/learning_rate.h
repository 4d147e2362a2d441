// Learning rate schedules: the rate of an iteration, in double, as a function of its number alone.
#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/train/options.h"

namespace lockstep {

// Rate of an iteration (from 1) of a training whose epochs have `iterations_per_epoch` (>= 1).
// `options` are resolved. The names of options.learning_rate_schedule follow each other; each lasts
// its entry of options.schedule_epochs, the last as long as the training does, and starts from the
// rate at which the one before it ended. With options.learning_rate_function that decides instead.
// Throws InvalidArgument where the function gives a rate that is negative or not finite.
// Thread-safe where the function is.
double learning_rate_of(const TrainingOptions& options, int64_t iteration,
                        int64_t iterations_per_epoch);

// Iterations (whole numbers) that each part of options.learning_rate_schedule lasts, as far as
// rates depend on it: a last part without an entry in options.schedule_epochs has one only where
// its rates are spread over the rest of max_epochs. None with learning_rate_function. Thread-safe.
std::vector<double> schedule_lengths(const TrainingOptions& options, int64_t iterations_per_epoch);

// Whether the rates of this schedule, as a last part, depend on how long it lasts. Thread-safe.
bool rates_depend_on_length(const std::string& schedule);

}  // namespace lockstep
