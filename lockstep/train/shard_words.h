// What a shard says besides its gradients.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lockstep {

// Its batch statistics follow, as floats: all channels of all of them.
struct ShardWords {
  double loss = 0;  // sum over its observations
  int64_t correct = 0;
};

inline size_t shard_word_bytes(int64_t statistic_elements) {
  return sizeof(ShardWords) + static_cast<size_t>(statistic_elements) * sizeof(float);
}

}  // namespace lockstep
