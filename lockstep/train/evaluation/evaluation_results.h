// The results of an evaluation, by observation, and what follows from them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "lockstep/base/threads/mutex.h"
#include "lockstep/engine/nn/metrics/metric.h"
#include "lockstep/train/evaluation/batch_evaluator.h"
#include "lockstep/train/evaluation/evaluated_batches.h"
#include "lockstep/train/evaluation/evaluation.h"
#include "lockstep/train/evaluation/metric_run.h"
#include "lockstep/train/evaluation/pixel_observations.h"

namespace lockstep {

// Measures other than loss and accuracy. They need labels or targets.
struct Measures {
  std::vector<MetricPtr> metrics = {};  // metrics that fit the data, see metrics_for()
  bool confusion = false;               // only with labels
};

// Sums in a fixed order, independent of which thread or worker computed a batch.
class EvaluationResults {
 public:
  // The batches must outlive it.
  EvaluationResults(EvaluatedBatches& batches, Measures measures);

  // Whether a metric reads scores. Of labels by pixel most do with pairs of classes.
  bool wants_scores() const;

  // Losses by observation and predicted classes, which take() writes and summarize() reads. Pairs
  // of classes of pixels are summed instead: these integers have the same sum in any order.
  std::vector<double>& losses() { return losses_; }
  std::vector<int64_t>& predicted() { return predicted_; }
  // Has take() write losses and what is kept of outputs (EvaluatedBatches::kept()) elsewhere, to
  // memory that several processes share perhaps.
  void write_to(double* losses, int64_t* kept);
  void write_here();

  // Begins an evaluation with metrics. Without it take() leaves them out.
  void begin();
  bool has_metrics() const { return metrics_.has_value(); }
  // Whether there are metrics that take the observations in order.
  bool in_order() const { return metrics_ && metrics_->in_order(); }
  // Takes a batch. `outputs`, if not null: where the scores of all observations lie. Thread-safe
  // for different batches.
  void take(const ComputedBatch& batch, float* outputs);
  // For metrics in order: the chunks that take() gets now are from `first` on, and below `end`. It
  // keeps their scores. The chunks before, which are all there, go to those metrics.
  void next_round(int64_t first, int64_t end);
  // Takes a chunk of a computed evaluation for all metrics. Chunks come in order.
  void add(int64_t chunk, const float* scores, const float* targets);
  // The same of labels by pixel, with the pairs that were kept of it, also without metrics.
  void add_pixels(int64_t chunk, const float* scores, std::span<const int64_t> pairs);

  // The result, and the end of the metrics.
  Evaluation summarize();

 private:
  struct Kept {
    std::vector<float> scores, targets;
    std::vector<int64_t> pairs;
  };

  IndexRange observations_of(int64_t chunk) const;
  std::vector<ScoredObservation> observations(int64_t chunk, const float* scores,
                                              const float* targets) const;
  void measure(int64_t chunk, const float* scores, const float* targets);
  // For labels by pixel: counts the pairs of classes of a chunk, gives metrics its pixels, and
  // summarizes.
  void take_pixels(const IndexRange& observations, const float* scores);
  void count_pixels(const IndexRange& observations, const float* scores,
                    std::span<int64_t> pairs) const;
  void add_to_sums(std::span<const int64_t> pairs);
  void measure_pixels(int64_t chunk, const float* scores, std::span<const int64_t> pairs,
                      bool in_order);
  void summarize_pixels(Evaluation& result) const;

  EvaluatedBatches& batches_;
  const Measures measures_;
  std::vector<double> losses_;
  std::vector<int64_t> predicted_;
  double* losses_to_ = nullptr;
  int64_t* kept_to_ = nullptr;  // null: pairs of classes are summed alone
  mutable Mutex mutex_;
  std::vector<int64_t> pairs_ LOCKSTEP_GUARDED_BY(mutex_);  // of all pixels, by pair
  std::optional<MetricRun> metrics_;
  // For metrics in order: the present round of chunks.
  int64_t round_ = 0;
  std::vector<Kept> kept_;
};

}  // namespace lockstep
