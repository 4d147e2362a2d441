// What the parts of a batch have made of its observations, in the order of these.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "lockstep/train/evaluation/batch_evaluator.h"

namespace lockstep {

class GatheredBatch {
 public:
  // `targets`: whether they are gathered, too.
  void begin(const EvaluatedBatches& batches, const IndexRange& observations, bool targets) {
    batches_ = &batches;
    observations_ = observations;
    const auto values = static_cast<size_t>(batches.outputs_of(observations).count * width());
    scores_.resize(values);
    losses_.resize(batches.plans_have_loss() ? static_cast<size_t>(observations.count) : 0);
    targets_.resize(targets ? values : 0);
  }
  // Results of a plan for a part, row by row; `losses` are read if plans compute them.
  void take(const EvaluatedPart& part, const float* scores, const float* losses) {
    copy_valid(scores, part, scores_);
    for (size_t i = 0; !losses_.empty() && i < part.observations.size(); ++i) {
      losses_[static_cast<size_t>(part.observations[i] - observations_.first)] = losses[i];
    }
  }
  void take_targets(const EvaluatedPart& part, const float* targets) {
    if (!targets_.empty()) copy_valid(targets, part, targets_);
  }
  ComputedBatch result(int thread) const {
    const auto or_null = [](const std::vector<float>& of) {
      return of.empty() ? nullptr : of.data();
    };
    return {observations_, thread, scores_.data(), or_null(losses_), or_null(targets_)};
  }

 private:
  int64_t width() const { return batches_->output().elements(); }
  // Copies the valid outputs of a part's rows to their indices among those of the batch.
  void copy_valid(const float* from, const EvaluatedPart& part, std::vector<float>& to) const {
    const int64_t first = batches_->outputs_of(observations_).first;
    for (const int64_t i : part.observations) {
      const IndexRange own = batches_->outputs_of({i, 1});
      std::copy_n(from, own.count * width(), to.data() + (own.first - first) * width());
      from += batches_->outputs_together(part.shape) * width();
    }
  }

  const EvaluatedBatches* batches_ = nullptr;
  IndexRange observations_;
  std::vector<float> scores_, losses_, targets_;
};

}  // namespace lockstep
