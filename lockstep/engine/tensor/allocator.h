// Memory for tensors: aligned to cache lines, kept for reuse when given back, for each device
// apart.
#pragma once

#include <cstddef>
#include <memory>

#include "lockstep/base/dtype.h"

namespace lockstep {

// A piece of memory, aligned to 64 bytes. Goes back to the cache when destroyed.
class Memory {
 public:
  Memory() = default;
  Memory(Memory&& other) noexcept;
  Memory& operator=(Memory&& other) noexcept;
  ~Memory();

  void* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  Device device() const { return device_; }

  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }

 private:
  friend Memory allocate(size_t bytes, Device device);
  Memory(void* data, size_t bytes, size_t capacity, Device device)
      : data_(data), bytes_(bytes), capacity_(capacity), device_(device) {}
  void* data_ = nullptr;
  size_t bytes_ = 0;
  size_t capacity_ = 0;
  Device device_;
};

// At least `bytes` of memory with unspecified contents. Throws Error, saying how much was asked and
// how much there is, when the system or device has no more. Thread-safe. What may still read a
// device's memory before it was given back: see device_memory.h.
Memory allocate(size_t bytes, Device device = {});
// The same, filled with zeros (on a device by its default queue).
Memory allocate_zeros(size_t bytes, Device device = {});
// Throws the same Error for sizes that no system has, beyond SIZE_MAX / 2: keeps sums from
// wrapping.
void check_allocatable(size_t bytes);

// Bytes handed out and not yet given back, bytes kept for reuse, and how often the system was
// asked.
struct AllocatorStatistics {
  size_t in_use = 0;
  size_t cached = 0;
  size_t system_allocations = 0;
};
AllocatorStatistics allocator_statistics(Device device = {});

// Gives cached memory of one device, or of the CPU, back to the system.
void release_cached_memory(Device device = {});

}  // namespace lockstep
