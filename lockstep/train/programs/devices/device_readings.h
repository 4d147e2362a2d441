// Values that a device copies to the host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "lockstep/engine/device/pinned.h"

namespace lockstep {

// The values of one shard, in the order of add(). One thread at a time.
class DeviceReadings {
 public:
  // The copies of earlier values must be done.
  void begin();
  // Adds the copy to the stream of the thread's eager work.
  void add(Device device, const float* from, int64_t count);
  // Valid when the copy is done.
  std::span<const float> of(size_t i) const { return all_[i]; }

 private:
  // Pinned memory, in large blocks because its allocation is slow.
  struct Block {
    Pinned memory;
    size_t bytes = 0, used = 0;
  };
  std::byte* memory_for(Device device, size_t bytes);

  std::vector<Block> blocks_;
  size_t block_ = 0;  // that has space
  std::vector<std::span<const float>> all_;
};

}  // namespace lockstep
