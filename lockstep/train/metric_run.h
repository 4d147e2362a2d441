// Metrics over observations that are evaluated part by part.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "lockstep/engine/nn/metric.h"
#include "lockstep/parallel/comm/merge_tree.h"

namespace lockstep {

// The values of some metrics over data cut into `chunks` parts. Metrics that merge take a chunk
// each, from any thread, and are merged by the fixed tree over chunks; others take all in order.
class MetricRun {
 public:
  MetricRun(std::vector<MetricPtr> metrics, MetricProblem problem, int64_t chunks);

  // Whether there are metrics that need add_in_order().
  bool in_order() const { return !ordered_.empty(); }
  // For metrics that merge: all observations of chunk number `chunk`, once each. Thread-safe.
  void add(int64_t chunk, std::span<const ScoredObservation> observations);
  // For the others: chunks in order. One thread at a time.
  void add_in_order(std::span<const ScoredObservation> observations);
  // After all of them; in the order of the metrics.
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
