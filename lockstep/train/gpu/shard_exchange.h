// The layout of the pinned memory for a shard's inputs and results.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "lockstep/train/gpu/device_augmentation.h"
#include "lockstep/train/programs/shard_plans.h"

namespace lockstep {

// Offsets of all parts of one shard's pinned memory, one part after the other.
struct ShardExchange {
  size_t target_bytes = 0;
  // Offsets of the parts that the host sends: inputs, images with their maps behind, and the rest.
  std::vector<size_t> inputs;
  size_t targets = 0, weights = 0;
  size_t losses = 0, scores = 0, statistics = 0;  // offsets of parts that the device returns
  size_t bytes = 0;

  // The bytes that a part takes. The maps of images begin so far behind the images.
  static size_t padded(size_t part) {
    constexpr size_t piece = DeviceAugmentation::kAlignment;
    return (part + piece - 1) / piece * piece;
  }

  ShardExchange(const ShardPlans& plans, int64_t rows) {
    const auto n = static_cast<size_t>(rows), outputs = static_cast<size_t>(plans.outputs());
    const auto place = [&](size_t size) {
      const size_t at = bytes;
      bytes += padded(size);
      return at;
    };
    target_bytes = plans.labelled() ? n * sizeof(int32_t) : n * outputs * sizeof(float);
    for (const ShardPlans::Input& input : plans.inputs()) {
      inputs.push_back(place(n * input.bytes()));
      // Directly behind the images: one copy sends both.
      if (input.type == DType::u8) place(n * sizeof(ImageMap));
    }
    targets = place(target_bytes);
    weights = place(n * sizeof(float));
    losses = place(n * sizeof(float));
    scores = place(plans.labelled() ? n * outputs * sizeof(float) : 0);
    statistics = place(static_cast<size_t>(plans.statistic_elements()) * sizeof(float));
  }
};

}  // namespace lockstep
