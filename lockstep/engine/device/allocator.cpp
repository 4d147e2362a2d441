#include "lockstep/engine/device/allocator.h"

#include <sys/mman.h>

#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/numeric/alignment.h"
#include "lockstep/base/os/memory_room.h"
#include "lockstep/base/threads/mutex.h"
#include "lockstep/engine/device/device_memory.h"
#include "lockstep/engine/device/eager_stream.h"
#include "lockstep/engine/device/poison.h"

namespace lockstep {
namespace {

constexpr size_t kAlignment = 64;
constexpr size_t kLargePage = size_t{2} << 20;
// Largest number of bytes that the CPU's cache keeps; memory beyond this is freed at once. A
// device's cache has no limit because allocation on a device is slow: it is emptied only when the
// device runs out of memory.
constexpr size_t kMostCached = size_t{256} << 20;

// Rounds up to four steps per power of two, so that similar sizes share a free list and at most a
// fifth is wasted. Large sizes on a device are rounded to whole pages instead, because device
// memory is scarce.
size_t rounded(size_t bytes, Device device) {
  constexpr size_t page = kLargePage, large = size_t{64} << 20;
  if (bytes <= 256) return 256;
  if (!device.is_cpu() && bytes >= large) return (bytes + page - 1) / page * page;
  const size_t step = std::bit_floor(bytes - 1) / 4;
  return (bytes + step - 1) / step * step;
}

using Blocks = std::map<size_t, std::vector<void*>>;  // by capacity

struct alignas(64) Cache {
  Mutex mutex;
  Blocks free LOCKSTEP_GUARDED_BY(mutex);
  // Blocks of streams for eager work other than the default stream, and the streams of all such
  // blocks.
  std::map<void*, Blocks> free_of_streams LOCKSTEP_GUARDED_BY(mutex);
  std::map<void*, void*> streams LOCKSTEP_GUARDED_BY(mutex);
  AllocatorStatistics statistics LOCKSTEP_GUARDED_BY(mutex);
};

struct DeviceCaches {
  Mutex mutex;
  std::map<Device, Cache> of LOCKSTEP_GUARDED_BY(mutex);
};

// The CPU's cache has a share for blocks of any size, and further ones for small blocks, which
// threads take turns to choose: eager ops on small tensors allocate every microsecond, and threads
// that wait for each other sleep. A block goes back to the share of the thread that releases it.
constexpr size_t kShares = 16;
constexpr size_t kSmall = size_t{64} << 10;
using CpuCaches = std::array<Cache, 1 + kShares>;

CpuCaches& cpu_caches() {
  static auto* instance = new CpuCaches;  // outlives every static tensor
  return *instance;
}

Cache& own_share() {
  static std::atomic<size_t> threads{0};
  thread_local const size_t share = threads.fetch_add(1) % kShares;
  return cpu_caches()[1 + share];
}

size_t most_cached(size_t capacity) {
  return capacity <= kSmall ? kMostCached / kShares : kMostCached;
}

// The cache of a device, or the shared one of the CPU.
Cache& cache_of(Device device) {
  if (device.is_cpu()) return cpu_caches()[0];
  static auto* caches = new DeviceCaches;  // outlives every static tensor
  const MutexLock lock(caches->mutex);
  return caches->of[device];
}

// The cache for blocks of this size.
Cache& cache_of(Device device, size_t capacity) {
  return device.is_cpu() && capacity <= kSmall ? own_share() : cache_of(device);
}

// Blocks from this size on lie on large pages where the system provides them. Kernels touch
// hundreds of pages at a time, and the TLB does not hold that many small ones.
constexpr size_t kLargeBlocks = 2 * kLargePage;

void* cpu_allocate(size_t capacity) {
  if (capacity < kLargeBlocks) return std::aligned_alloc(kAlignment, capacity);
  // A size that is a multiple of the alignment, as the C standard demands.
  void* const data = std::aligned_alloc(kLargePage, round_up(capacity, kLargePage));
#ifdef MADV_HUGEPAGE
  if (data) madvise(data, capacity, MADV_HUGEPAGE);  // only a hint: small pages work too
#endif
  return data;
}

void* system_allocate(size_t capacity, Device device) {
  if (device.is_cpu()) return cpu_allocate(capacity);
  return memory_of(device).allocate(capacity);
}

void system_release(void* data, Device device) {
  if (device.is_cpu()) {
    std::free(data);
  } else {
    memory_of(device).release(data);
  }
}

void give_back(void* data, size_t capacity, Device device) {
  Cache& c = cache_of(device, capacity);
  {
    const MutexLock lock(c.mutex);
    c.statistics.in_use -= capacity;  // of one share it may be below 0
    if (!device.is_cpu() || c.statistics.cached + capacity <= most_cached(capacity)) {
      const auto owner = c.streams.find(data);
      Blocks& free = owner == c.streams.end() ? c.free : c.free_of_streams[owner->second];
      free[capacity].push_back(data);
      c.statistics.cached += capacity;
      return;
    }
  }
  std::free(data);
}

void release_blocks(Cache& c, Blocks& free, Device device) LOCKSTEP_REQUIRES(c.mutex) {
  for (auto& [capacity, blocks] : free) {
    for (void* data : blocks) {
      c.streams.erase(data);
      system_release(data, device);
    }
    c.statistics.cached -= capacity * blocks.size();
    blocks.clear();
  }
}

std::span<Cache> caches_of(Device device) {
  if (device.is_cpu()) return cpu_caches();
  return {&cache_of(device), 1};
}

std::string mib(size_t bytes) { return std::to_string(bytes >> 20) + " MiB"; }

[[noreturn]] void refuse(size_t bytes, Device device = {}) {
  const size_t in_use = allocator_statistics(device).in_use;
  if (device.is_cpu()) {
    throw OutOfMemory(
        "[memory] the system has refused " + mib(bytes) + " (" + mib(in_use) + " are in use)",
        "a smaller shard_size or mini_batch_size needs less");
  }
  const DeviceMemoryFigures figures = memory_of(device).figures();
  throw OutOfMemory(
      "[memory] " + to_string(device) + " does not have " + mib(bytes) + " left: " + mib(in_use) +
          " are in use by this process, " + mib(figures.free) + " of its " + mib(figures.total) +
          " are free",
      "a smaller shard_size or mini_batch_size needs less; other programs may use the "
      "device too");
}

}  // namespace

void check_allocatable(size_t bytes) {
  if (bytes > SIZE_MAX / 2) refuse(bytes);
}

Memory::Memory(Memory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      capacity_(std::exchange(other.capacity_, 0)),
      device_(other.device_) {}

Memory& Memory::operator=(Memory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(capacity_, other.capacity_);
  std::swap(device_, other.device_);
  return *this;
}

Memory::~Memory() {
  if (data_) give_back(data_, capacity_, device_);
}

Memory allocate(size_t bytes, Device device) {
  check_allocatable(bytes);
  const size_t capacity = rounded(bytes, device);
  Cache& c = cache_of(device, capacity);
  void* const stream = device.is_cpu() ? nullptr : EagerStream::of_thread(device);
  {
    const MutexLock lock(c.mutex);
    Blocks& free = stream ? c.free_of_streams[stream] : c.free;
    auto found = free.find(capacity);
    if (found != free.end() && !found->second.empty()) {
      void* data = found->second.back();
      found->second.pop_back();
      c.statistics.cached -= capacity;
      c.statistics.in_use += capacity;
      if (device.is_cpu()) fill_with_poison(data, bytes);
      return {data, bytes, capacity, device};
    }
  }
  void* data = system_allocate(capacity, device);
  if (!data && !device.is_cpu()) {
    release_cached_memory(device);
    data = system_allocate(capacity, device);
  }
  if (!data) refuse(bytes, device);
  if (device.is_cpu()) fill_with_poison(data, bytes);
  const MutexLock lock(c.mutex);
  if (stream) c.streams[data] = stream;
  c.statistics.in_use += capacity;
  ++c.statistics.system_allocations;
  return {data, bytes, capacity, device};
}

Memory allocate_zeros(size_t bytes, Device device) {
  Memory memory = allocate(bytes, device);
  eager_zero(device, memory.data(), bytes);
  return memory;
}

AllocatorStatistics allocator_statistics(Device device) {
  AllocatorStatistics sum;
  for (Cache& c : caches_of(device)) {
    const MutexLock lock(c.mutex);
    sum.in_use += c.statistics.in_use;
    sum.cached += c.statistics.cached;
    sum.system_allocations += c.statistics.system_allocations;
  }
  return sum;
}

void release_cached_memory(Device device) {
  for (Cache& c : caches_of(device)) {
    const MutexLock lock(c.mutex);
    release_blocks(c, c.free, device);
    for (auto& [stream, free] : c.free_of_streams) release_blocks(c, free, device);
  }
}

void release_stream_memory(Device device, void* stream) {
  Cache& c = cache_of(device);
  const MutexLock lock(c.mutex);
  for (auto& [capacity, blocks] : c.free_of_streams[stream]) {
    std::vector<void*>& free = c.free[capacity];
    free.insert(free.end(), blocks.begin(), blocks.end());
  }
  c.free_of_streams.erase(stream);
  std::erase_if(c.streams, [&](const auto& block) { return block.second == stream; });
}

}  // namespace lockstep
