// The results of a shard other than its gradients.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lockstep {

// The batch statistics follow it as floats: all channels of all statistics.
struct ShardSummary {
  double loss = 0;  // sum over the shard's observations
  int64_t correct = 0;
};

inline size_t shard_summary_bytes(int64_t statistic_elements) {
  return sizeof(ShardSummary) + static_cast<size_t>(statistic_elements) * sizeof(float);
}

}  // namespace lockstep
