#include "lockstep/train/evaluation/evaluation_results.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "lockstep/engine/nn/loss.h"
#include "lockstep/parallel/reduce/schedule.h"

namespace lockstep {

EvaluationResults::EvaluationResults(EvaluatedBatches& batches, Measures measures)
    : batches_(batches),
      measures_(std::move(measures)),
      losses_(static_cast<size_t>(batches.observations())),
      predicted_(static_cast<size_t>(batches.pixels() > 0 ? 0 : batches.kept())) {
  write_here();
}

void EvaluationResults::write_to(double* losses, int64_t* kept) {
  losses_to_ = losses;
  kept_to_ = kept;
}

void EvaluationResults::write_here() {
  write_to(losses_.data(), batches_.pixels() > 0 ? nullptr : predicted_.data());
}

bool EvaluationResults::wants_scores() const {
  if (batches_.against() == Against::nothing) return false;
  if (batches_.pixels() == 0) return !measures_.metrics.empty();
  return std::ranges::any_of(measures_.metrics,
                             [](const MetricPtr& m) { return m->needs_scores(); });
}

void EvaluationResults::begin() {
  metrics_.reset();
  kept_.clear();
  if (batches_.pixels() > 0) {
    const MutexLock lock(mutex_);
    pairs_.assign(static_cast<size_t>(batches_.pairs()), 0);
  }
  if (batches_.against() == Against::nothing || measures_.metrics.empty()) return;
  const Shape& output = batches_.output();
  metrics_.emplace(
      measures_.metrics,
      MetricProblem{batches_.classes(), batches_.pixels() > 0 ? Shape{output[0]} : output,
                    batches_.parts()},
      batches_.chunks());
}

IndexRange EvaluationResults::observations_of(int64_t chunk) const {
  return {chunk * EvaluatedBatches::kChunk, batches_.rows_of_chunk(chunk)};
}

std::vector<ScoredObservation> EvaluationResults::observations(int64_t chunk, const float* scores,
                                                               const float* targets) const {
  const auto width = static_cast<size_t>(batches_.output().elements());
  std::vector<ScoredObservation> all;
  std::vector<int32_t> memory;
  const IndexRange of = observations_of(chunk);
  for (int64_t i = of.first; i < of.end(); ++i) {
    const bool labels = batches_.against() == Against::labels;
    const std::span<const int32_t> known =
        labels ? batches_.labels_of(i, memory) : std::span<const int32_t>();
    for (int64_t k = 0; k < batches_.outputs_of({i, 1}).count; ++k, scores += width) {
      ScoredObservation o;
      o.index = i;
      o.scores = {scores, width};
      if (labels) {
        o.label = known[static_cast<size_t>(k)];
      } else {
        o.target = {targets, width};
        targets += width;
      }
      all.push_back(o);
    }
  }
  return all;
}

void EvaluationResults::measure(int64_t chunk, const float* scores, const float* targets) {
  metrics_->add(chunk, observations(chunk, scores, targets));
  if (!metrics_->in_order()) return;
  Kept& k = kept_[static_cast<size_t>(chunk - round_)];
  const int64_t outputs = batches_.outputs_of(observations_of(chunk)).count;
  const auto count = static_cast<size_t>(outputs * batches_.output().elements());
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
  const IndexRange all = batches_.outputs_of(rows);
  for (int64_t i = 0; compares && i < rows.count; ++i) {
    losses_to_[static_cast<size_t>(rows.first + i)] = static_cast<double>(losses[i]);
  }
  for (int64_t k = 0; k < all.count; ++k) {
    const float* const row = scores + k * width;
    if (batches_.against() == Against::labels && batches_.pixels() == 0) {
      kept_to_[static_cast<size_t>(all.first + k)] =
          predicted_class({row, static_cast<size_t>(width)});
    }
    if (outputs) std::copy_n(row, width, outputs + (all.first + k) * width);
  }
  if (batches_.pixels() > 0) return take_pixels(rows, scores);
  if (!metrics_) return;
  for (int64_t i = 0; i < rows.count; i += EvaluatedBatches::kChunk) {
    const int64_t before = batches_.outputs_of({rows.first, i}).count * width;
    measure((rows.first + i) / EvaluatedBatches::kChunk, scores + before,
            targets ? targets + before : nullptr);
  }
}

void EvaluationResults::next_round(int64_t first, int64_t end) {
  for (int64_t chunk = round_; chunk < round_ + static_cast<int64_t>(kept_.size()); ++chunk) {
    const Kept& k = kept_[static_cast<size_t>(chunk - round_)];
    if (batches_.pixels() > 0) {
      measure_pixels(chunk, k.scores.data(), k.pairs, true);
      continue;
    }
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

void EvaluationResults::add_pixels(int64_t chunk, const float* scores,
                                   std::span<const int64_t> pairs) {
  add_to_sums(pairs);
  if (!metrics_) return;
  measure_pixels(chunk, scores, pairs, false);
  if (metrics_->in_order()) measure_pixels(chunk, scores, pairs, true);
}

void EvaluationResults::count_pixels(const IndexRange& observations, const float* scores,
                                     std::span<int64_t> pairs) const {
  std::vector<int32_t> memory;
  std::ranges::fill(pairs, 0);
  for (int64_t i = observations.first; i < observations.end(); ++i) {
    add_pairs(scores, batches_.labels_of(i, memory), batches_.output()[0], pairs);
    scores += batches_.output().elements();
  }
}

void EvaluationResults::add_to_sums(std::span<const int64_t> pairs) {
  const MutexLock lock(mutex_);
  for (size_t i = 0; i < pairs.size(); ++i) pairs_[i] += pairs[i];
}

void EvaluationResults::take_pixels(const IndexRange& observations, const float* scores) {
  const auto pairs = static_cast<size_t>(batches_.pairs());
  const bool shared = kept_to_ != nullptr;
  std::vector<int64_t> own(shared ? 0 : pairs);
  for (int64_t i = 0; i < observations.count; i += EvaluatedBatches::kChunk) {
    const int64_t chunk = (observations.first + i) / EvaluatedBatches::kChunk;
    const IndexRange of = observations_of(chunk);
    const std::span<int64_t> counts =
        shared ? std::span(kept_to_ + batches_.kept_of(of).first, pairs) : std::span(own);
    count_pixels(of, scores, counts);
    if (!shared) add_to_sums(counts);
    if (metrics_) {
      measure_pixels(chunk, scores, counts, false);
      if (metrics_->in_order()) {
        Kept& k = kept_[static_cast<size_t>(chunk - round_)];
        k.pairs.assign(counts.begin(), counts.end());
        if (wants_scores()) {
          k.scores.assign(scores, scores + of.count * batches_.output().elements());
        }
      }
    }
    scores += of.count * batches_.output().elements();
  }
}

void EvaluationResults::measure_pixels(int64_t chunk, const float* scores,
                                       std::span<const int64_t> pairs, bool in_order) {
  const IndexRange of = observations_of(chunk);
  PixelObservations made(batches_.output()[0]);
  std::vector<int32_t> memory;
  const int64_t parts = wants_scores() ? of.count : 1;
  const auto part = [&](int64_t i) -> std::span<const ScoredObservation> {
    if (!wants_scores()) return made.of_pairs(of.first, pairs);
    return made.of_scores(of.first + i, scores + i * batches_.output().elements(),
                          batches_.labels_of(of.first + i, memory));
  };
  if (!in_order) return metrics_->add(chunk, parts, part);
  for (int64_t i = 0; i < parts; ++i) metrics_->add_in_order(part(i));
}

void EvaluationResults::summarize_pixels(Evaluation& result) const {
  const int64_t classes = batches_.output()[0];
  const MutexLock lock(mutex_);
  int64_t all = 0, right = 0;
  for (int64_t label = 0; label < classes; ++label) {
    for (int64_t predicted = 0; predicted < classes; ++predicted) {
      const int64_t count = pairs_[static_cast<size_t>(label * classes + predicted)];
      all += count;
      if (label == predicted) right += count;
      if (result.confusion) result.confusion->add(label, predicted, count);
    }
  }
  if (all == 0) return;  // no pixel counts
  result.loss = tree_sum(losses_) / static_cast<double>(all);
  result.accuracy = static_cast<double>(right) / static_cast<double>(all);
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
  if (batches_.pixels() > 0) {
    summarize_pixels(result);
    return result;
  }
  if (batches_.against() != Against::nothing) {
    result.loss = tree_sum(losses_) / static_cast<double>(batches_.loss_terms());
  }
  if (!labeled) return result;
  int64_t right = 0;
  std::vector<int32_t> memory;
  auto taken = predicted_.begin();
  for (int64_t i = 0; i < n; ++i) {
    for (const int64_t label : batches_.labels_of(i, memory)) {
      right += *taken == label;
      if (result.confusion) result.confusion->add(label, *taken);
      ++taken;
    }
  }
  result.accuracy = static_cast<double>(right) / static_cast<double>(predicted_.size());
  return result;
}

}  // namespace lockstep
