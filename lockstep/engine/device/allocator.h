// Memory for tensors: aligned to cache lines and cached for reuse, separately for each device.
#pragma once

#include <cstddef>
#include <memory>

#include "lockstep/base/numeric/dtype.h"

namespace lockstep {

// A block of memory, aligned to 64 bytes. The destructor returns it to the cache.
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

// Returns at least `bytes` of memory with unspecified contents. Throws Error with the requested and
// the available size when the system or device has no more memory. Thread-safe. Pending device work
// may still read memory that was returned to the cache: see device_memory.h.
Memory allocate(size_t bytes, Device device = {});
// Like allocate(), filled with zeros. On a device the default stream fills it.
Memory allocate_zeros(size_t bytes, Device device = {});
// Throws the same Error for sizes beyond SIZE_MAX / 2, which no system has. Prevents overflow in
// later additions.
void check_allocatable(size_t bytes);

// Bytes in use, bytes cached for reuse, and the number of allocations from the system.
struct AllocatorStatistics {
  size_t in_use = 0;
  size_t cached = 0;
  size_t system_allocations = 0;
};
AllocatorStatistics allocator_statistics(Device device = {});

// Returns the cached memory of one device, or of the CPU, to the system.
void release_cached_memory(Device device = {});

}  // namespace lockstep
