// Learning rate schedules: the rate of an iteration, in double. It depends only on the options and
// the iteration's number.
#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/train/options/options.h"

namespace lockstep {

// The rate of an iteration (from 1) of a training with `iterations_per_epoch` (>= 1). `options` are
// resolved. The schedules in options.schedule.types follow each other. Each lasts for its
// entry in options.schedule.epochs, the last one to the end of the training, and starts from the
// final rate of the previous one. options.schedule.function, if set, replaces the schedules.
// Throws InvalidArgument if the function returns a negative or non-finite rate. Thread-safe if the
// function is.
double learning_rate_of(const TrainingOptions& options, int64_t iteration,
                        int64_t iterations_per_epoch);

// The lengths, in whole iterations, of those parts of options.schedule.types whose length
// affects the rates. A last part without an entry in options.schedule.epochs has a length only if
// its rates are spread over the rest of max_epochs. Empty with a function. Thread-safe.
std::vector<double> schedule_lengths(const TrainingOptions& options, int64_t iterations_per_epoch);

// Whether the rates of this schedule, as the last part, depend on its length. Thread-safe.
bool rates_depend_on_length(const std::string& schedule);

}  // namespace lockstep
