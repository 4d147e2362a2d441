#include "lockstep/train/loop/due_work.h"

#include <algorithm>

#include "lockstep/train/options/options.h"

namespace lockstep {
namespace {

// Number of iterations in a dry run. The first one warms up and the last one is timed.
constexpr int64_t kDryIterations = 3;

}  // namespace

int64_t iterations_between(int64_t frequency, FrequencyUnit unit, int64_t iterations_per_epoch) {
  if (frequency == 0) return iterations_per_epoch;
  return unit == FrequencyUnit::epoch ? frequency * iterations_per_epoch : frequency;
}

int64_t DueWork::last_iteration() const {
  return setup_.options.last_iteration(setup_.iterations_per_epoch);
}

bool DueWork::due(int64_t iteration, int64_t frequency, FrequencyUnit unit) const {
  return iteration % iterations_between(frequency, unit, setup_.iterations_per_epoch) == 0;
}

bool DueWork::validation(int64_t iteration) const {
  const TrainingOptions& o = setup_.options;
  return setup_.validates && (dry_run_ends(iteration) ||
                              due(iteration, o.validation.frequency, o.validation.frequency_unit));
}

bool DueWork::checkpoint(int64_t iteration) const {
  const TrainingOptions& o = setup_.options;
  return setup_.saves && due(iteration, o.checkpoints.frequency, o.checkpoints.frequency_unit);
}

bool DueWork::dry_run_ends(int64_t iteration) const {
  return setup_.dry_run && iteration >= kDryIterations;
}

bool DueWork::stop(int64_t iteration) const {
  return setup_.stops_after > 0 && iteration >= setup_.stops_after;
}

int64_t DueWork::next(int64_t iteration) const {
  constexpr int64_t kFar = 64;
  const int64_t last = std::min(iteration + kFar, last_iteration());
  while (iteration < last && !stop(iteration) && !dry_run_ends(iteration) &&
         !validation(iteration) && !checkpoint(iteration)) {
    ++iteration;
  }
  return iteration;
}

}  // namespace lockstep
