// Metrics over observations that are evaluated in chunks.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "lockstep/engine/nn/metrics/metric.h"
#include "lockstep/parallel/reduce/merge_tree.h"

namespace lockstep {

// Computes the values of metrics over data in `chunks` parts. Metrics that merge process each chunk
// separately, in any thread, and are merged by the fixed tree over the chunks. Other metrics take
// all observations in order.
class MetricRun {
 public:
  MetricRun(std::vector<MetricPtr> metrics, MetricProblem problem, int64_t chunks);

  // Whether there are metrics that need add_in_order().
  bool in_order() const { return !ordered_.empty(); }
  // For metrics that merge: adds all observations of one chunk. Call it once for each chunk.
  // Thread-safe.
  void add(int64_t chunk, std::span<const ScoredObservation> observations);
  // The same for a chunk in parts, which are made one after another: `part(i)` is valid until the
  // next one.
  using Part = std::function<std::span<const ScoredObservation>(int64_t i)>;
  void add(int64_t chunk, int64_t parts, const Part& part);
  // For the other metrics: adds observations, chunk by chunk in order. Not thread-safe.
  void add_in_order(std::span<const ScoredObservation> observations);
  // Returns the values in the order of the metrics. Call it after all observations have been added.
  std::vector<MetricValue> finish();

 private:
  using States = std::vector<std::unique_ptr<MetricState>>;
  States begin(bool merging) const;

  std::vector<MetricPtr> metrics_;
  MetricProblem problem_;
  std::optional<MergeTree<States>> tree_;
  States ordered_;
};

}  // namespace lockstep
