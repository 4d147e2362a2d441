#include "lockstep/train/evaluation/pixel_observations.h"

#include "lockstep/engine/ops/labels.h"

namespace lockstep {

void add_pairs(const float* scores, std::span<const int32_t> labels, int64_t classes,
               std::span<int64_t> pairs) {
  std::vector<int32_t> predicted(labels.size());
  predicted_classes(scores, classes, predicted);
  for (size_t p = 0; p < labels.size(); ++p) {
    if (labels[p] == kIgnoredLabel) continue;
    ++pairs[static_cast<size_t>(labels[p] * classes + predicted[p])];
  }
}

std::span<const ScoredObservation> PixelObservations::of_scores(int64_t observation,
                                                                const float* scores,
                                                                std::span<const int32_t> labels) {
  const auto classes = static_cast<size_t>(classes_);
  scores_.resize(labels.size() * classes);
  for (size_t c = 0; c < classes; ++c) {
    for (size_t p = 0; p < labels.size(); ++p) {
      scores_[p * classes + c] = scores[c * labels.size() + p];
    }
  }
  all_.clear();
  for (size_t p = 0; p < labels.size(); ++p) {
    if (labels[p] == kIgnoredLabel) continue;
    all_.push_back(
        {.index = observation, .scores = {&scores_[p * classes], classes}, .label = labels[p]});
  }
  return all_;
}

std::span<const ScoredObservation> PixelObservations::of_pairs(int64_t first,
                                                               std::span<const int64_t> pairs) {
  all_.clear();
  for (size_t i = 0; i < pairs.size(); ++i) {
    if (pairs[i] == 0) continue;
    const auto at = static_cast<int64_t>(i);
    all_.push_back(
        {.index = first, .label = at / classes_, .predicted = at % classes_, .count = pairs[i]});
  }
  return all_;
}

}  // namespace lockstep
