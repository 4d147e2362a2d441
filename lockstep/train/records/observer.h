// Observers of a training, and the records that they receive: of the start, the iterations, the
// validations and the workers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/base/digest.h"
#include "lockstep/engine/nn/metrics/metric.h"

namespace lockstep {

struct TrainingStart;  // training_start.h

// One iteration. Everything but the times is independent of the threads and workers that computed
// it.
struct IterationRecord {
  int64_t iteration = 0;  // from 1
  int64_t epoch = 0;      // from 1
  int64_t in_epoch = 0;   // number of the mini-batch in the epoch, from 1
  double loss = 0;        // mean over the mini-batch, without L2
  double accuracy = 0;    // share of correctly classified observations; NaN if targets are images
  double learning_rate = 0;
  Digest observations;  // of the indices of the mini-batch's observations
  Digest digest;  // of parameters, network state, solver state and counters after the iteration
  Digest chain;   // of this record and all previous ones
  // Times in seconds: since the start of the training in this process, and of this iteration.
  double elapsed = 0;
  double seconds = 0;
  int64_t observations_count = 0;
  int64_t steps_count = 0;  // of sequences, those of their longest input; 0: there are none
};

struct ValidationRecord {
  int64_t iteration = 0;
  int64_t epoch = 0;
  double loss = 0;
  double accuracy = 0;
  int64_t observations = 0;
  double seconds = 0;
  std::vector<MetricValue> metrics = {};  // the metrics of the options, in their order
};

// The phase after the last iteration, with batch_normalization_statistics = "population".
struct PopulationRecord {
  int64_t iteration = 0;  // iteration of the network's values
  int64_t layers = 0;     // layers of batch normalization
  int64_t passes = 0;     // over the training images
  Digest observations;    // of the training listing, including contents
  Digest digest;          // of the network's parameters and state afterwards
  Digest chain;           // of this record and all previous ones
  double seconds = 0;
};

// A worker process has joined, has left because it was lent, or was lost.
struct WorkerChange {
  uint32_t worker = 0;  // its number, which is never reused
  int64_t pid = 0;
  std::string host = {};  // "": this machine
  bool joined = false;    // the worker computes from now on
  bool left = false;      // TrainingControl::workers names it no longer; if neither, it was lost
  std::string how = {};   // if lost, the reason: "was killed by signal 9 (SIGKILL)"
  int64_t iteration = 0;  // the last finished iteration at that time
  int64_t members = 0;    // workers that compute now
  // If lost: seconds from the detection until the other workers continued.
  double seconds = 0;
};

// The work of one worker process in a training.
struct WorkerSummary {
  uint32_t worker = 0;
  int64_t pid = 0;
  int64_t shards = 0;               // computed shards
  bool lost = false, left = false;  // see WorkerChange
  std::string host = {};            // "": this machine
  double shard_seconds = 0;         // duration of its last shard
  double iteration_seconds = 0;     // of its last iteration, with the exchange of sums
};

// Receives events of a training. The thread that called train() calls the functions between
// iterations, in the floating-point mode of the training (round to nearest, subnormal numbers are
// zero). An exception ends the training and is rethrown.
class TrainingObserver {
 public:
  virtual ~TrainingObserver() = default;
  // During the preparation: `done` of `total` images are read. Called from time to time before
  // start().
  virtual void preparing(int64_t done, int64_t total) { (void)done, (void)total; }
  virtual void start(const TrainingStart&) {}
  virtual void iteration(const IterationRecord&) {}
  virtual void validation(const ValidationRecord&) {}
  // Called before a checkpoint is written. Files that must not be older than it are written now.
  virtual void saving(int64_t iteration) { (void)iteration; }
  virtual void checkpoint(const std::string& path, int64_t iteration) {
    (void)path, (void)iteration;
  }
  // `validation_patience` validations in a row have not improved. This iteration was the last.
  virtual void out_of_patience(int64_t iteration) { (void)iteration; }
  // Called before every pass over the training images for population statistics; `pass` is from 0.
  virtual void population_pass(int64_t pass, int64_t passes) { (void)pass, (void)passes; }
  virtual void population(const PopulationRecord&) {}
  // A worker process has joined, has left or was lost.
  virtual void worker(const WorkerChange&) {}
  // Every few seconds and after the last iteration: what the workers have computed up to then.
  virtual void workers(const std::vector<WorkerSummary>& all, int64_t iteration) {
    (void)all, (void)iteration;
  }
  // The training was stopped before its end, after this iteration and its checkpoint.
  virtual void stopped(int64_t iteration) { (void)iteration; }
  // The last call of a training that ends without an exception, also if it was stopped.
  virtual void end() {}
  // Any other message for the user, for example that a damaged checkpoint was skipped.
  virtual void notice(const std::string& text) { (void)text; }
};

}  // namespace lockstep
