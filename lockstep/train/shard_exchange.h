// Where things lie that a device takes from the host for a shard, and brings back.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lockstep/train/device_augmentation.h"
#include "lockstep/train/shard_plans.h"

namespace lockstep {

// What one shard brings to the device and back, piece behind piece in pinned memory.
struct ShardExchange {
  size_t target_bytes = 0;
  size_t inputs = 0, maps = 0, targets = 0, weights = 0;  // offsets of what goes there
  size_t losses = 0, scores = 0, statistics = 0;          // and of what comes back
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
    maps = place(n * sizeof(kernels::ImageMap));  // behind them: one copy brings both
    targets = place(target_bytes);
    weights = place(n * sizeof(float));
    losses = place(n * sizeof(float));
    scores = place(plans.labelled() ? n * outputs * sizeof(float) : 0);
    statistics = place(static_cast<size_t>(plans.statistic_elements()) * sizeof(float));
  }
};

}  // namespace lockstep
