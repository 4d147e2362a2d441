// Computes the iterations of a training, by threads of this process or by worker processes.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "lockstep/engine/nn/metrics/metric.h"
#include "lockstep/train/evaluation/evaluation.h"
#include "lockstep/train/input/training_images.h"
#include "lockstep/train/optimizer/solver.h"
#include "lockstep/train/profile/profile.h"
#include "lockstep/train/records/iteration_outcome.h"
#include "lockstep/train/records/observer.h"

namespace lockstep {

// One thread at a time.
class Iterations {
 public:
  virtual ~Iterations() = default;
  // Computes the next iteration. Iterations up to `last` may begin before the caller asks for them.
  // Throws DataError for data that cannot be read, and what computing throws.
  virtual IterationOutcome next(int64_t iteration, int64_t last) = 0;
  // The last iteration that has begun.
  virtual int64_t begun() const = 0;
  // Starts the time of the next iteration. Earlier time is not part of it.
  virtual void begin_timing() = 0;
  // Evaluates the validation data, which must not be empty, after the last iteration that has
  // begun.
  virtual Evaluation validate() = 0;
  // Copies the present parameters, states and solver arrays to this process.
  virtual void fetch() = 0;
  // Number of shards that each thread (on a GPU: stream) has computed; with workers, each worker.
  virtual std::vector<int64_t> shards() const = 0;
  // The time profile, if one was requested.
  virtual std::optional<Profile> profile() = 0;
};

}  // namespace lockstep
