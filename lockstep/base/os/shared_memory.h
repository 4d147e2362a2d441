// Memory shared by the processes of one host. It is anonymous, is passed by descriptor, and is
// freed when the last of the processes ends, even by a crash.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

// A mapped block of shared memory, unmapped with the last copy of the pointer. The bytes are zero
// at first and take memory only when they are first written.
using SharedRegion = std::shared_ptr<std::byte[]>;

// The bytes of a region in the arena. Sent between processes.
struct SharedRange {
  size_t offset = 0, bytes = 0;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(offset, bytes);
  }
};

// An arena (memfd_create(2)) of regions. The process that made it reserves and frees regions; other
// processes only map them. An arena on another host may mirror it: its regions lie at the same
// offsets, and the caller copies their contents. Thread-safe.
class SharedMemory {
 public:
  // Throws Error if the system cannot make one. `name` appears in /proc/PID/maps.
  explicit SharedMemory(const std::string& name);
  // The arena of an inherited descriptor. Takes ownership of the descriptor.
  explicit SharedMemory(int descriptor);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  int descriptor() const;
  // The size of the arena in bytes: the end of the last region that was reserved or covered here.
  size_t size() const;
  // Reserves a zeroed region at an offset that no region has had before. Throws Error.
  SharedRange reserve(size_t bytes);
  // For a mirror: makes room for a region that was reserved in the other arena. Throws Error.
  void cover(const SharedRange& range);
  // Returns the memory of a region to the system. Existing mappings then read zeros.
  void free(const SharedRange& range);
  // Sets a callback, which free() calls with the region while it holds the arena's mutex. Null
  // removes the callback.
  void on_free(std::function<void(const SharedRange&)> told);
  // Throws InvalidArgument for a range outside the arena, Error if it cannot be mapped.
  SharedRegion map(const SharedRange& range) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Owns a reserved region and frees it. Not thread-safe.
class ReservedRange {
 public:
  ReservedRange() = default;
  // Throws like reserve().
  ReservedRange(SharedMemory& memory, size_t bytes)
      : ReservedRange(memory, memory.reserve(bytes)) {}
  // Takes ownership of a region that is already reserved.
  ReservedRange(SharedMemory& memory, const SharedRange& range) : memory_(&memory), range_(range) {}
  ~ReservedRange() {
    if (memory_ != nullptr) memory_->free(range_);
  }
  ReservedRange(ReservedRange&& other) noexcept
      : memory_(std::exchange(other.memory_, nullptr)), range_(other.range_) {}
  ReservedRange& operator=(ReservedRange&& other) noexcept {
    std::swap(memory_, other.memory_);
    std::swap(range_, other.range_);
    return *this;
  }
  const SharedRange& operator*() const { return range_; }

 private:
  SharedMemory* memory_ = nullptr;
  SharedRange range_;
};

}  // namespace lockstep
