// Images that a device changes itself: they come as they were read, with a map each.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lockstep/base/shape.h"
#include "lockstep/engine/kernels/table.h"
#include "lockstep/engine/plan/plan.h"
#include "lockstep/engine/tensor/allocator.h"
#include "lockstep/engine/tensor/device_memory.h"

namespace lockstep {

// For one run of a plan; one thread at a time.
class DeviceAugmentation {
 public:
  // Whether the device has a kernel for it.
  static bool possible(Device device) {
    return kernels::table_for(device).augment_images != nullptr;
  }
  // `image`: channels x height x width; with so many rows input 0 of the run's plan.
  DeviceAugmentation(const Shape& image, int64_t rows, const PlanRun& run, Device device);

  // Adds to the run's queue: copies the images, changes them, and leaves the result as input 0.
  // `host`, pinned: the images, padded to kAlignment bytes, and the maps behind them.
  void add(const std::byte* host, const PlanRun& run);

  static constexpr size_t kAlignment = 64;

 private:
  const kernels::Table& table_;
  DeviceMemory& device_;
  kernels::AugmentImages work_;
  size_t bytes_ = 0;
  Memory memory_;
};

}  // namespace lockstep
