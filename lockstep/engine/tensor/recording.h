// Work that is added to a queue over and over.
#pragma once

#include <functional>

#include "lockstep/engine/tensor/device_memory.h"

namespace lockstep {

// The first time work is added as it is, the second time it is recorded, from then on the recording
// is repeated, which takes one call however much it is. Where the device records nothing, or not
// this work, it is added as it is each time. One thread at a time.
class Recording {
 public:
  // The device and the queue must outlive it. While it records, nobody else may add to the queue:
  // not for queues that are shared, as a device's default queue is.
  Recording(DeviceMemory& device, void* queue) : device_(&device), queue_(queue) {}
  // The queue must be done with it.
  ~Recording() { forget(); }
  Recording(Recording&& other) noexcept;
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;
  Recording& operator=(Recording&&) = delete;

  // `add` adds the work to the queue: the same each time, as long as nothing is forgotten. What
  // changes from time to time lies in memory, behind addresses that stay.
  void run(const std::function<void()>& add);
  // What comes next is other work. The queue must be done with the former.
  void forget() noexcept;

 private:
  void record(const std::function<void()>& add);

  DeviceMemory* device_;
  void* queue_;
  bool has_run_ = false, recordable_ = true;
  void* recording_ = nullptr;
};

}  // namespace lockstep
