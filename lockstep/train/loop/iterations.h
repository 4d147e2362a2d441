// Computes the iterations of a training, by threads of this process or by worker processes
// (make_iterations(), train/make_iterations.h).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/threads/thread_pool.h"
#include "lockstep/engine/nn/metrics/metric.h"
#include "lockstep/engine/nn/network.h"
#include "lockstep/train/evaluation/evaluation.h"
#include "lockstep/train/input/training_data.h"
#include "lockstep/train/input/training_images.h"
#include "lockstep/train/optimizer/solver.h"
#include "lockstep/train/profile/profile.h"
#include "lockstep/train/records/iteration_outcome.h"
#include "lockstep/train/records/observer.h"
#include "lockstep/train/state/finite_values.h"

namespace lockstep {

struct TrainingOptions;

struct IterationsSetup {
  const TrainingOptions& options;  // resolved
  const TrainingData& data;
  // The order of the data's columns. Each worker opens the data itself and puts it in this order.
  TableColumns columns = {};
  std::function<double(int64_t)> learning_rate = {};  // by iteration
  bool profile = false;                               // take a time profile
  std::function<bool()> interrupted = {};  // whether to stop waiting for data and for any worker
  // For iterations by workers:
  std::function<void(const WorkerChange&)> on_change = {};
  std::function<void(const std::string&)> notice = {};  // other messages for the user
  std::function<bool()> stop = {};  // whether to stop waiting for workers on other hosts
};

// What is known once all images are read.
struct IterationsStart {
  Network& network;
  Solver& solver;
  ThreadPool& pool;
  TrainingImages images;
  std::vector<MetricPtr> metrics = {};  // of validations
  int64_t first = 1;                    // the first iteration
};

// One thread at a time. Keeps references to the members of setup and start.
class Iterations {
 public:
  virtual ~Iterations() = default;
  // Before anything is read: gives the images' caches to the workers. The cached data is available
  // as long as this object.
  virtual void share(const TrainingImages&) {}
  // Handles events of the workers while this process reads images. Lost workers are replaced.
  virtual void attend() {}
  // Begins with the first iteration, from the values of network and solver. Must be called before
  // the functions below. Throws what the constructors of queue, step and evaluator throw.
  virtual void begin(const IterationsStart& start) = 0;
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
  // Values after the last iteration that are not finite. Right after validate() workers need not
  // send their values for it.
  virtual std::optional<NotFinite> not_finite() = 0;
  // Copies the present parameters, states and solver arrays to this process.
  virtual void fetch() = 0;
  // Number of shards that each thread (on a GPU: stream) has computed; with workers, each worker.
  virtual std::vector<int64_t> shards() const = 0;
  // All workers of the training, including those that were lost or have left. `exact`: figures of
  // workers on other hosts are requested from there; else they are those that came last.
  virtual std::vector<WorkerSummary> workers(bool exact) const {
    return (void)exact, std::vector<WorkerSummary>{};
  }
  // The time profile, if one was requested.
  virtual std::optional<Profile> profile() { return std::nullopt; }
};

}  // namespace lockstep
