// Memory that processes of one host share: anonymous, passed by descriptor, gone with the last of
// them, however they end.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

// A mapped piece of shared memory. Unmapped when the last copy goes. Bytes are zeros at first and
// take memory when they are first written.
using SharedRegion = std::shared_ptr<std::byte[]>;

// Where a region lies, as one process tells another.
struct SharedPlace {
  size_t offset = 0, bytes = 0;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(offset, bytes);
  }
};

// An arena (memfd_create(2)) from which one process reserves regions that it and others map. The
// process that made it reserves and frees; the others only map. On another host an arena may mirror
// it: there regions lie at the same places, whose contents somebody brings. Thread-safe.
class SharedMemory {
 public:
  // Throws Error where the system gives none. `name` is seen in /proc/PID/maps.
  explicit SharedMemory(const std::string& name);
  // The arena behind a descriptor that was inherited; takes it.
  explicit SharedMemory(int descriptor);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  int descriptor() const;
  // Of all regions that were reserved, or covered, here.
  size_t size() const;
  // Zeros, at a place that no region has had. Throws Error.
  SharedPlace reserve(size_t bytes);
  // Of a mirror: makes room for a region that was reserved elsewhere. Throws Error.
  void cover(const SharedPlace& place);
  // Gives the memory behind a region back; who has it mapped then reads zeros.
  void free(const SharedPlace& place);
  // Called with every region that is given back, by whoever does it; null: nobody.
  void on_free(std::function<void(const SharedPlace&)> told);
  // Throws InvalidArgument for a place outside the arena, Error where it cannot be mapped.
  SharedRegion map(const SharedPlace& place) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// A region that is given back with its owner. One thread at a time.
class ReservedPlace {
 public:
  ReservedPlace() = default;
  // Throws as reserve().
  ReservedPlace(SharedMemory& memory, size_t bytes)
      : ReservedPlace(memory, memory.reserve(bytes)) {}
  // Takes one that was reserved.
  ReservedPlace(SharedMemory& memory, const SharedPlace& place) : memory_(&memory), place_(place) {}
  ~ReservedPlace() {
    if (memory_ != nullptr) memory_->free(place_);
  }
  ReservedPlace(ReservedPlace&& other) noexcept
      : memory_(std::exchange(other.memory_, nullptr)), place_(other.place_) {}
  ReservedPlace& operator=(ReservedPlace&& other) noexcept {
    std::swap(memory_, other.memory_);
    std::swap(place_, other.place_);
    return *this;
  }
  const SharedPlace& operator*() const { return place_; }

 private:
  SharedMemory* memory_ = nullptr;
  SharedPlace place_;
};

}  // namespace lockstep
