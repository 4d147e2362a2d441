// Observers of a training.
#pragma once

#include <cstdint>
#include <string>

#include "lockstep/train/records/records.h"

namespace lockstep {

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
  // A worker process has joined or was lost.
  virtual void worker(const WorkerChange&) {}
  // The training was stopped before its end, after this iteration and its checkpoint.
  virtual void stopped(int64_t iteration) { (void)iteration; }
  // Any other message for the user, for example that a damaged checkpoint was skipped.
  virtual void notice(const std::string& text) { (void)text; }
};

}  // namespace lockstep
