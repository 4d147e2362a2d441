// Pixels with labels, as metrics take observations.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lockstep/engine/nn/metrics/metric.h"

namespace lockstep {

// Adds the pixels of an observation by pairs: pairs[label * classes + predicted class]. `scores`:
// classes x pixels. Pixels with kIgnoredLabel do not count. Thread-safe.
void add_pairs(const float* scores, std::span<const int32_t> labels, int64_t classes,
               std::span<int64_t> pairs);

// What metrics see of the pixels of one observation, or of the pairs of several, at a time; valid
// until the next one. One thread at a time.
class PixelObservations {
 public:
  explicit PixelObservations(int64_t classes) : classes_(classes) {}

  // Each pixel that counts, with its scores.
  std::span<const ScoredObservation> of_scores(int64_t observation, const float* scores,
                                               std::span<const int32_t> labels);
  // Each pair that occurs (add_pairs()) in the observations from `first` on, for metrics that need
  // no scores.
  std::span<const ScoredObservation> of_pairs(int64_t first, std::span<const int64_t> pairs);

 private:
  const int64_t classes_;
  std::vector<float> scores_;  // pixels x classes
  std::vector<ScoredObservation> all_;
};

}  // namespace lockstep
