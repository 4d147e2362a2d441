// Streams for eager work other than a device's default stream, for code that computes independent
// parts of one job at the same time.
//
// Eager work of two streams has no order. Code that adds it orders it: an EagerStream's work first
// follows the default stream, and the default stream follows it before the results are used there.
#pragma once

#include "lockstep/engine/device/device_memory.h"

namespace lockstep {

// During its lifetime, the calling thread's eager work on the device goes to `stream`, null: to the
// default stream. Eager work is ops on tensors, conversions and copies. Memory that is allocated
// for it returns to a cache that only the stream's work uses. A thread's objects must be destroyed
// in reverse order of creation.
class EagerStream {
 public:
  EagerStream(Device device, void* stream);
  ~EagerStream();
  EagerStream(const EagerStream&) = delete;
  EagerStream& operator=(const EagerStream&) = delete;

  // Null if there is none: the default stream.
  static void* of_thread(Device device);

 private:
  const Device device_;
  void* const stream_;
  const EagerStream* const before_;
};

// The stream of the calling thread's eager work on a device other than the CPU.
void* eager_stream_of(Device device);

// Copies within a device. On the CPU the copy is immediate, otherwise it is eager work. Runs of
// plans wait for that work, and it waits for runs after PlanRun::join().
void eager_copy(Device device, void* to, const void* from, size_t bytes);
// The same for zeros.
void eager_zero(Device device, void* to, size_t bytes);

// Makes all memory of a stream memory of the default stream. The stream's work must be done.
void release_stream_memory(Device device, void* stream);

// A stream for EagerStream. The destructor waits for its work and returns its cached memory.
class StreamForEager {
 public:
  explicit StreamForEager(Device device) : device_(device), stream_(device) {}
  ~StreamForEager();
  StreamForEager(const StreamForEager&) = delete;
  StreamForEager& operator=(const StreamForEager&) = delete;
  void* get() const { return stream_.get(); }

 private:
  const Device device_;
  const DeviceStream stream_;
};

}  // namespace lockstep
