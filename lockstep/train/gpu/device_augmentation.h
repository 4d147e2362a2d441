// Augmentation of images on the device. The host sends unchanged images with one map each.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lockstep/base/numeric/shape.h"
#include "lockstep/engine/device/allocator.h"
#include "lockstep/engine/device/device_memory.h"
#include "lockstep/engine/kernels/backends/table.h"
#include "lockstep/engine/kernels/images/augment_images.h"
#include "lockstep/engine/plan/plan.h"

namespace lockstep {

// Belongs to one run of a plan. One thread at a time.
class DeviceAugmentation {
 public:
  // Whether the device has an augmentation kernel.
  static bool possible(Device device) {
    return kernels::table_for(device).augment_images != nullptr;
  }
  // `image`: channels x height x width. With `rows` rows it is input `input` of the run's plan.
  DeviceAugmentation(const Shape& image, int64_t rows, const PlanRun& run, int input,
                     Device device);

  // Adds work to the run's stream: copies the images, augments them and writes the result to the
  // input. `host`: pinned memory with the images, padded to kAlignment bytes, then the maps.
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
