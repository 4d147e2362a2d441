#include "lockstep/train/evaluation/metric_run.h"

namespace lockstep {

MetricRun::MetricRun(std::vector<MetricPtr> metrics, MetricProblem problem, int64_t chunks)
    : metrics_(std::move(metrics)), problem_(std::move(problem)), ordered_(begin(false)) {
  if (chunks == 0) return;
  tree_.emplace(chunks, [](States& left, States& right) {
    for (size_t m = 0; m < left.size(); ++m) left[m]->merge(*right[m]);
  });
}

MetricRun::States MetricRun::begin(bool merging) const {
  States states;
  for (const MetricPtr& metric : metrics_) {
    if (metric->merges() == merging) states.push_back(metric->init(problem_));
  }
  return states;
}

void MetricRun::add(int64_t chunk, std::span<const ScoredObservation> observations) {
  add(chunk, 1, [&](int64_t) { return observations; });
}

void MetricRun::add(int64_t chunk, int64_t parts, const Part& part) {
  States states = begin(true);
  for (int64_t i = 0; i < parts; ++i) {
    const std::span<const ScoredObservation> observations = part(i);
    for (const auto& state : states) {
      for (const ScoredObservation& o : observations) state->accumulate(o);
    }
  }
  tree_->add(chunk, std::move(states));
}

void MetricRun::add_in_order(std::span<const ScoredObservation> observations) {
  for (const auto& state : ordered_) {
    for (const ScoredObservation& o : observations) state->accumulate(o);
  }
}

std::vector<MetricValue> MetricRun::finish() {
  const States merged = tree_ ? tree_->take() : begin(true);
  std::vector<MetricValue> values;
  size_t next_merged = 0, next_ordered = 0;
  for (const MetricPtr& metric : metrics_) {
    const auto& state = metric->merges() ? merged[next_merged++] : ordered_[next_ordered++];
    values.push_back({metric->name(), state->finish()});
  }
  return values;
}

}  // namespace lockstep
