// The layout of the pinned memory for a shard's inputs and results.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lockstep/train/gpu/device_augmentation.h"
#include "lockstep/train/programs/shard_plans.h"

namespace lockstep {

// Offsets of all parts of one shard's pinned memory, one part after the other.
struct ShardExchange {
  size_t target_bytes = 0;
  size_t inputs = 0, maps = 0, targets = 0, weights = 0;  // offsets of parts that the host sends
  size_t losses = 0, scores = 0, statistics = 0;  // offsets of parts that the device returns
  size_t bytes = 0;

  ShardExchange(const ShardPlans& plans, int64_t rows) {
    const auto n = static_cast<size_t>(rows), outputs = static_cast<size_t>(plans.outputs());
    const auto place = [&](size_t size) {
      constexpr size_t piece = DeviceAugmentation::kAlignment;
      const size_t at = bytes;
      bytes += (size + piece - 1) / piece * piece;
      return at;
    };
    target_bytes = plans.labelled() ? n * sizeof(int32_t) : n * outputs * sizeof(float);
    inputs = place(n * plans.input_bytes());
    maps = place(n * sizeof(ImageMap));  // directly behind the inputs: one copy sends both
    targets = place(target_bytes);
    weights = place(n * sizeof(float));
    losses = place(n * sizeof(float));
    scores = place(plans.labelled() ? n * outputs * sizeof(float) : 0);
    statistics = place(static_cast<size_t>(plans.statistic_elements()) * sizeof(float));
  }
};

}  // namespace lockstep
