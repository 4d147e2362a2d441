// Values that travel between the host and a device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "lockstep/engine/device/pinned.h"
#include "lockstep/engine/tensor/tensor.h"

namespace lockstep {

// The values of one shard. All copies are added to the stream of the thread's eager work, and the
// host does not wait for them. One thread at a time.
class DeviceTransfers {
 public:
  // The copies of earlier values must be done.
  void begin();
  // A tensor on the device with the values that `fill` writes, row-major.
  Tensor send(Device device, const TensorSpec& spec, const std::function<void(void* to)>& fill);
  // Copies values to the host.
  void read(Device device, const float* from, int64_t count);
  // What was read, in the order of read(). Valid when the copy is done.
  std::span<const float> of(size_t i) const { return all_[i]; }

 private:
  // Pinned memory, in large blocks because its allocation is slow.
  struct Block {
    Pinned memory;
    size_t bytes = 0, used = 0;
  };
  std::byte* memory_for(Device device, size_t bytes);

  std::vector<Block> blocks_;
  std::vector<std::span<const float>> all_;
};

}  // namespace lockstep
