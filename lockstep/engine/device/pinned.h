// Pinned host memory. A device copies from and to it while the host continues.
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>

#include "lockstep/engine/device/device_memory.h"

namespace lockstep {

class Pinned {
 public:
  Pinned(DeviceMemory& device, size_t bytes)
      : device_(&device), data_(device.allocate_pinned(std::max<size_t>(bytes, 64))) {}
  ~Pinned() {
    if (data_) device_->release_pinned(data_);
  }
  Pinned(Pinned&& other) noexcept
      : device_(other.device_), data_(std::exchange(other.data_, nullptr)) {}
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;
  Pinned& operator=(Pinned&&) = delete;

  std::byte* data() const { return static_cast<std::byte*>(data_); }

 private:
  DeviceMemory* device_;
  void* data_;
};

}  // namespace lockstep
