// The parameters of a sweep's trials. A trial is a function of the sweep's options and the trial's
// number: it does not depend on who asks, or when. Functions are thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/runs/jobs/sweep_table.h"

namespace lockstep {

// The JSON of a parameter's value at a position in [0, 1). Numbers have six significant digits.
std::string parameter_value(const SweepParameter& parameter, double position);
// A position whose value this is: the middle of all of them for values of a list and integers.
double parameter_position(const SweepParameter& parameter, const std::string& value);

// The trial at a point of the unit cube, with one coordinate for each parameter. Parameters whose
// conditions do not hold are left out.
TrialParameters trial_at(const SweepOptions& options, std::span<const double> point);

// All trials of the grid, in order: the last parameter varies fastest. Throws InvalidArgument for a
// range without a number of steps, and for more than 100,000 trials.
std::vector<TrialParameters> grid_trials(const SweepOptions& options);

// Trial `number`, from 1, of independent draws, or of a scrambled Sobol sequence. The latter throws
// InvalidArgument for more parameters than it has dimensions.
TrialParameters random_trial(const SweepOptions& options, int64_t number);
TrialParameters sobol_trial(const SweepOptions& options, int64_t number);

}  // namespace lockstep
