// A fold of a cross-validation: its run, in this process or on a worker.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/engine/nn/metrics/metric.h"
#include "lockstep/parallel/pool/data_queue.h"
#include "lockstep/train/evaluation/evaluation.h"

namespace lockstep {

// The values of a fold's validation, by name: loss, accuracy, metrics.
using FoldValues = std::vector<MetricValue>;
FoldValues fold_values(const Evaluation& validation);

// The folder of a fold, from 1, in that of a cross-validation.
std::string fold_folder(const std::string& folder, int64_t fold);

// What a worker is to do.
struct FoldTask {
  int64_t fold = 1;
  std::string job, file;      // Job::resolved() as JSON; the file that errors name
  std::string folder, store;  // of the run; of the run store, or ""
  int64_t frequency = 50;     // iterations between messages for the user
  int64_t threads = 0;        // at the beginning; 0: those of the job, always

  template <class Archive>
  void serialize(Archive& archive) {
    archive(fold, job, file, folder, store, frequency, threads);
  }
};

// How far a fold is.
struct FoldMessage {
  int64_t fold = 0;
  bool shown = false;  // for the user; others are for the division of the processors
  std::string text;    // a notice; the numbers below do not count then
  int64_t iteration = 0, iterations = 0, epoch = 0;
  int64_t saved = 0;                                       // iteration of the newest checkpoint
  double loss = 0;                                         // of the iteration
  std::vector<std::pair<std::string, double>> validation;  // empty: there was none
  // Shards of a mini-batch, and as in RunOrders.
  int64_t shards = 0, threads = 1, measured = 0;
  double rate = 0;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(fold, shown, text, iteration, iterations, epoch, saved, loss, validation, shards,
            threads, measured, rate);
  }
};

// Order to a fold: a number of threads, or to save its state and end.
inline constexpr int64_t fold_must_end = -1;

struct FoldReport {
  bool stopped = false;  // before its end: it can be continued
  std::vector<std::pair<std::string, double>> values;

  FoldValues named() const;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(stopped, values);
  }
};

// Trains a fold, or continues it, on a worker. Throws what run_job() throws.
FoldReport run_fold(const FoldTask& task, const QueueSender<FoldMessage>& messages,
                    const QueueReceiver<int64_t>& receiver);

}  // namespace lockstep
