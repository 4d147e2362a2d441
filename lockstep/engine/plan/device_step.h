// The RandomContext that kernels on a device read. The host does not wait when it changes.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "lockstep/engine/device/allocator.h"
#include "lockstep/engine/device/device_memory.h"
#include "lockstep/engine/kernels/interface/kernel.h"

namespace lockstep {

// Not thread-safe. The work on the stream must be finished before destruction.
class DeviceStep {
 public:
  DeviceStep(Device device, void* stream);
  ~DeviceStep();
  DeviceStep(const DeviceStep&) = delete;
  DeviceStep& operator=(const DeviceStep&) = delete;

  // Other work on the device may write there, too.
  RandomContext* address() const { return memory_.as<RandomContext>(); }
  // Work that is added to the stream from now on reads `step`. It does nothing if the last call had
  // the same argument.
  void set(const RandomContext& step);

 private:
  // Pinned slots that pending copies read, in two halves. A mark after the last copy of a half
  // tells when its slots can be used again, so set() waits only if the device lags by a whole half.
  static constexpr size_t kHalf = 8, kSlots = 2 * kHalf;
  DeviceMemory& device_;
  void* stream_;
  Memory memory_;
  RandomContext* slots_;             // pinned
  std::array<DeviceMark, 2> marks_;  // by half
  size_t next_ = 0;                  // slot
  std::optional<RandomContext> last_;
};

}  // namespace lockstep
