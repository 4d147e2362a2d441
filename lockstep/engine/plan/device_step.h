// The StepInfo that kernels on a device read. The host does not wait when it changes.
#pragma once

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

  const StepInfo* address() const { return memory_.as<StepInfo>(); }
  // Work that is added to the stream from now on reads `step`.
  void set(const StepInfo& step);

 private:
  // Pinned slots that pending copies read. set() waits for the stream when all slots are used.
  static constexpr size_t kSlots = 16;
  DeviceMemory& device_;
  void* stream_;
  Memory memory_;
  StepInfo* slots_;  // pinned
  size_t used_ = 0;
  std::optional<StepInfo> last_;
};

}  // namespace lockstep
