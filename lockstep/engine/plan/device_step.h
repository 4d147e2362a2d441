// The StepInfo that kernels on a device read, filled without waiting.
#pragma once

#include <cstdint>
#include <optional>

#include "lockstep/engine/kernels/kernel.h"
#include "lockstep/engine/tensor/allocator.h"
#include "lockstep/engine/tensor/device_memory.h"

namespace lockstep {

// One thread at a time. The queue's work must be done before it is destroyed.
class DeviceStep {
 public:
  DeviceStep(Device device, void* queue);
  ~DeviceStep();
  DeviceStep(const DeviceStep&) = delete;
  DeviceStep& operator=(const DeviceStep&) = delete;

  const kernels::StepInfo* address() const { return memory_.as<kernels::StepInfo>(); }
  // Work added to the queue from now on reads `step`.
  void set(const kernels::StepInfo& step);

 private:
  // Copies under way read these; the queue is waited for when they have all been used.
  static constexpr size_t kSlots = 16;
  DeviceMemory& device_;
  void* queue_;
  Memory memory_;
  kernels::StepInfo* slots_;  // pinned
  size_t used_ = 0;
  std::optional<kernels::StepInfo> last_;
};

}  // namespace lockstep
