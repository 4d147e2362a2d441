#include "lockstep/engine/tensor/allocator.h"

#include <bit>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

constexpr size_t kAlignment = 64;
constexpr size_t kMostCached = size_t{256} << 20;  // beyond this, memory goes back at once

// Sizes are rounded up to four steps per power of two, so that near sizes share a free list and at
// most a fifth is wasted.
size_t rounded(size_t bytes) {
  if (bytes <= 256) return 256;
  const size_t step = std::bit_floor(bytes - 1) / 4;
  return (bytes + step - 1) / step * step;
}

struct Cache {
  std::mutex mutex;
  std::map<size_t, std::vector<void*>> free;
  AllocatorStatistics statistics;
};

Cache& cache() {
  static auto* instance = new Cache;  // outlives every static tensor
  return *instance;
}

void give_back(void* data, size_t capacity) {
  Cache& c = cache();
  {
    std::lock_guard lock(c.mutex);
    c.statistics.in_use -= capacity;
    if (c.statistics.cached + capacity <= kMostCached) {
      c.free[capacity].push_back(data);
      c.statistics.cached += capacity;
      return;
    }
  }
  std::free(data);
}

[[noreturn]] void refuse(size_t bytes) {
  throw Error("[memory] the system refused " + std::to_string(bytes >> 20) + " MiB (" +
                  std::to_string(allocator_statistics().in_use >> 20) + " MiB are in use)",
              "a smaller shard_size or mini_batch_size needs less");
}

}  // namespace

void check_allocatable(size_t bytes) {
  if (bytes > SIZE_MAX / 2) refuse(bytes);
}

Memory::Memory(Memory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      capacity_(std::exchange(other.capacity_, 0)) {}

Memory& Memory::operator=(Memory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(capacity_, other.capacity_);
  return *this;
}

Memory::~Memory() {
  if (data_) give_back(data_, capacity_);
}

Memory allocate(size_t bytes) {
  check_allocatable(bytes);
  const size_t capacity = rounded(bytes);
  Cache& c = cache();
  {
    std::lock_guard lock(c.mutex);
    auto found = c.free.find(capacity);
    if (found != c.free.end() && !found->second.empty()) {
      void* data = found->second.back();
      found->second.pop_back();
      c.statistics.cached -= capacity;
      c.statistics.in_use += capacity;
      return {data, bytes, capacity};
    }
  }
  void* data = std::aligned_alloc(kAlignment, capacity);
  if (!data) refuse(bytes);
  std::lock_guard lock(c.mutex);
  c.statistics.in_use += capacity;
  ++c.statistics.system_allocations;
  return {data, bytes, capacity};
}

Memory allocate_zeros(size_t bytes) {
  Memory memory = allocate(bytes);
  std::memset(memory.data(), 0, bytes);
  return memory;
}

AllocatorStatistics allocator_statistics() {
  std::lock_guard lock(cache().mutex);
  return cache().statistics;
}

void release_cached_memory() {
  Cache& c = cache();
  std::lock_guard lock(c.mutex);
  for (auto& [capacity, pieces] : c.free) {
    for (void* data : pieces) std::free(data);
    c.statistics.cached -= capacity * pieces.size();
    pieces.clear();
  }
}

}  // namespace lockstep
