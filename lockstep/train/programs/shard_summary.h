// The results of a shard other than its gradients.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "lockstep/train/records/iteration_outcome.h"

namespace lockstep {

// The batch statistics follow it as floats: all channels of all statistics.
struct ShardSummary {
  double loss = 0;  // sum over the shard's observations
  int64_t correct = 0;
  LossesNotFinite not_finite = {};

  // The loss of an observation at a position in the mini-batch.
  void add(double value, int64_t position) {
    loss += value;
    if (!std::isfinite(value)) not_finite.add(position, position);
  }
};

inline size_t shard_summary_bytes(int64_t statistic_elements) {
  return sizeof(ShardSummary) + static_cast<size_t>(statistic_elements) * sizeof(float);
}

}  // namespace lockstep
