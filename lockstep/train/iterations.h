// Who computes the iterations of a training: the threads of this process, or worker processes.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "lockstep/base/digest.h"
#include "lockstep/engine/nn/metric.h"
#include "lockstep/train/solver.h"
#include "lockstep/train/trainer.h"
#include "lockstep/train/training_images.h"
#include "lockstep/train/training_step.h"

namespace lockstep {

// What an iteration said, the same whoever computed it.
struct IterationOutcome {
  int64_t iteration = 0;
  int64_t epoch = 0, index = 0;  // of its mini-batch, from 0
  int64_t observations = 0;
  Digest observations_digest;
  StepResult sums;
  // Afterwards. Where the loss is not a finite number nothing was applied, and this is none.
  Digest digest;
  double seconds = 0;  // since the one before, or since begin_timing()
  // When; the steady clock is the same for all processes of a host.
  std::chrono::steady_clock::time_point finished = {};

  template <class Archive>
  void serialize(Archive& archive) {
    auto ticks = finished.time_since_epoch().count();
    archive(iteration, epoch, index, observations, observations_digest, sums, digest, seconds,
            ticks);
    finished = decltype(finished)(std::chrono::steady_clock::duration(ticks));
  }
};

// One thread at a time.
class Iterations {
 public:
  virtual ~Iterations() = default;
  // Computes the next iteration. Those up to `last` may be begun before they are asked for. Throws
  // DataError for what cannot be read, and what computing throws.
  virtual IterationOutcome next(int64_t iteration, int64_t last) = 0;
  // The last iteration that has been begun.
  virtual int64_t begun() const = 0;
  // What comes now does not count for the next iteration's seconds.
  virtual void begin_timing() = 0;
  // On the validation data, of which there must be some, after the last iteration that was begun.
  virtual Evaluation validate() = 0;
  // Brings learnables, states and solver of this process to where the iterations are.
  virtual void fetch() = 0;
  // Shards that each thread (GPU: queue) has computed; with workers, each worker.
  virtual std::vector<int64_t> shards() const = 0;
  // Where the time went, if it was asked for.
  virtual std::optional<Profile> profile() = 0;
};

}  // namespace lockstep
