#include "lockstep/train/evaluation/evaluation_results.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "lockstep/engine/nn/loss.h"
#include "lockstep/parallel/reduce/tree.h"

namespace lockstep {

EvaluationResults::EvaluationResults(EvaluatedBatches& batches, Measures measures)
    : batches_(batches),
      measures_(std::move(measures)),
      losses_(static_cast<size_t>(batches.observations())),
      predicted_(losses_.size()) {
  write_here();
}

void EvaluationResults::write_to(double* losses, int64_t* predicted) {
  losses_to_ = losses;
  predicted_to_ = predicted;
}

void EvaluationResults::begin_metrics() {
  metrics_.reset();
  kept_.clear();
  if (!wants_scores()) return;
  metrics_.emplace(measures_.metrics, MetricProblem{batches_.classes(), batches_.output()},
                   batches_.chunks());
}

std::vector<ScoredObservation> EvaluationResults::observations(int64_t chunk, const float* scores,
                                                               const float* targets) const {
  const auto width = static_cast<size_t>(batches_.output().elements());
  std::vector<ScoredObservation> all;
  for (int64_t i = 0; i < batches_.rows_of_chunk(chunk); ++i) {
    ScoredObservation o;
    o.index = chunk * EvaluatedBatches::kChunk + i;
    o.scores = {scores + static_cast<size_t>(i) * width, width};
    if (batches_.against() == Against::labels) {
      o.label = batches_.data().images->label(o.index);
    } else {
      o.target = {targets + static_cast<size_t>(i) * width, width};
    }
    all.push_back(o);
  }
  return all;
}

void EvaluationResults::measure(int64_t chunk, const float* scores, const float* targets) {
  metrics_->add(chunk, observations(chunk, scores, targets));
  if (!metrics_->in_order()) return;
  Kept& k = kept_[static_cast<size_t>(chunk - round_)];
  const auto count =
      static_cast<size_t>(batches_.rows_of_chunk(chunk) * batches_.output().elements());
  k.scores.assign(scores, scores + count);
  if (targets) k.targets.assign(targets, targets + count);
}

void EvaluationResults::take(const ComputedBatch& batch, float* outputs) {
  const auto& [rows, thread, scores, losses_of_plan, targets] = batch;
  const bool compares = batches_.against() != Against::nothing;
  const int64_t width = batches_.output().elements();
  const float* losses = losses_of_plan;
  std::vector<float> custom;
  if (batches_.data().loss && compares) {
    custom = batches_.custom_losses(rows, thread);
    losses = custom.data();
  }
  for (int64_t i = 0; i < rows.count; ++i) {
    const float* const row = scores + i * width;
    const auto at = static_cast<size_t>(rows.first + i);
    if (compares) losses_to_[at] = static_cast<double>(losses[i]);
    if (batches_.against() == Against::labels) {
      predicted_to_[at] = predicted_class({row, static_cast<size_t>(width)});
    }
    if (outputs) std::copy_n(row, width, outputs + (rows.first + i) * width);
  }
  if (!metrics_) return;
  for (int64_t i = 0; i < rows.count; i += EvaluatedBatches::kChunk) {
    measure((rows.first + i) / EvaluatedBatches::kChunk, scores + i * width,
            targets ? targets + i * width : nullptr);
  }
}

void EvaluationResults::next_round(int64_t first, int64_t end) {
  for (int64_t chunk = round_; chunk < round_ + static_cast<int64_t>(kept_.size()); ++chunk) {
    const Kept& k = kept_[static_cast<size_t>(chunk - round_)];
    metrics_->add_in_order(observations(chunk, k.scores.data(), k.targets.data()));
  }
  round_ = first;
  kept_.resize(static_cast<size_t>(end - first));
}

void EvaluationResults::add(int64_t chunk, const float* scores, const float* targets) {
  const auto all = observations(chunk, scores, targets);
  metrics_->add(chunk, all);
  if (metrics_->in_order()) metrics_->add_in_order(all);
}

Evaluation EvaluationResults::summarize() {
  const int64_t n = batches_.observations();
  const bool labeled =
      batches_.against() == Against::labels && takes_labels(batches_.network().loss());
  Evaluation result;
  result.observations = n;
  result.loss = result.accuracy = std::nan("");
  if (metrics_) result.metrics = metrics_->finish();
  metrics_.reset();
  if (labeled && measures_.confusion) result.confusion.emplace(batches_.classes());
  if (n == 0) return result;
  if (batches_.against() != Against::nothing) {
    result.loss = tree_sum(losses_) / static_cast<double>(n);
  }
  if (!labeled) return result;
  int64_t right = 0;
  for (int64_t i = 0; i < n; ++i) {
    const int64_t label = batches_.data().images->label(i);
    const int64_t taken = predicted_[static_cast<size_t>(i)];
    right += taken == label;
    if (result.confusion) result.confusion->add(label, taken);
  }
  result.accuracy = static_cast<double>(right) / static_cast<double>(n);
  return result;
}

}  // namespace lockstep
