// The work that follows an iteration: a validation, a checkpoint, a stop.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep {

struct TrainingOptions;
enum class FrequencyUnit : uint8_t;

// Iterations between two validations or checkpoints: `frequency` of the unit; 0: an epoch.
int64_t iterations_between(int64_t frequency, FrequencyUnit unit, int64_t iterations_per_epoch);

struct DueWorkSetup {
  const TrainingOptions& options;  // resolved
  int64_t iterations_per_epoch = 1;
  bool validates = false;   // whether there are validations
  bool saves = false;       // whether there are checkpoints
  bool dry_run = false;     // a few iterations, with a validation after the last one
  int64_t stops_after = 0;  // the training stops after this iteration; 0: it does not
};

// Depends on the options alone, not on results or requests from outside. Iterations count from 1.
// Keeps a reference to the options. Thread-safe.
class DueWork {
 public:
  explicit DueWork(const DueWorkSetup& setup) : setup_(setup) {}

  // The iteration after which the training ends.
  int64_t last_iteration() const;
  bool validation(int64_t iteration) const;
  bool checkpoint(int64_t iteration) const;
  bool dry_run_ends(int64_t iteration) const;
  // Whether the training has reached the iteration after which it stops before its end.
  bool stop(int64_t iteration) const;
  // The first iteration from `iteration` on that work follows. Looks some iterations ahead: the
  // last one that it looked at if none of them has work.
  int64_t next(int64_t iteration) const;

 private:
  bool due(int64_t iteration, int64_t frequency, FrequencyUnit unit) const;

  const DueWorkSetup setup_;
};

}  // namespace lockstep
