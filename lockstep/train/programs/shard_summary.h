// The results of a shard other than its gradients.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "lockstep/train/records/iteration_outcome.h"

namespace lockstep {

// Floats follow it: the batch statistics, all channels of each one, and what the shard's rows leave
// in states by row, all rows of each one (CarriedRows::take()).
struct ShardSummary {
  double loss = 0;  // sum over the shard's observations
  int64_t correct = 0;
  int64_t terms = 0;  // of the loss: observations, or the valid steps of sequences
  LossesNotFinite not_finite = {};

  // The loss of an observation at a position in the mini-batch.
  void add(double value, int64_t position) {
    loss += value;
    if (!std::isfinite(value)) not_finite.add(position, position);
  }
};

inline size_t shard_summary_bytes(int64_t floats) {
  return sizeof(ShardSummary) + static_cast<size_t>(floats) * sizeof(float);
}

}  // namespace lockstep
