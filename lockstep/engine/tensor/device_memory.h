// Memory of devices other than the CPU: what a back end has to offer, and who offers it.
//
// Work on a device is added to queues (CUDA: streams) and done in the order of its queue. Each
// device has one default queue, used by all that is called at once: ops on tensors, conversions,
// copies. Memory given back to the cache may be handed out again while work added to the default
// queue still reads it; whoever uses another queue orders it behind the default one before, and the
// default one (or the host) behind it after.
#pragma once

#include <cstddef>
#include <memory>

#include "lockstep/base/dtype.h"
#include "lockstep/base/error.h"

namespace lockstep {

struct DeviceMemoryFigures {
  size_t free = 0, total = 0;  // bytes
};

// One device. Thread-safe. Functions that fail throw Error. Addresses are the device's own, unless
// said otherwise. `queue` is one of make_queue() or default_queue(); work is added to it without
// waiting. Each function makes the device the calling thread's current one where that matters.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;

  // Makes the device the one that this thread's kernels are made for and run on.
  virtual void activate() = 0;

  // Aligned to 256 bytes; null when there is not enough. See tensor/allocator.h for the cache.
  virtual void* allocate(size_t bytes) = 0;
  virtual void release(void* data) noexcept = 0;
  virtual DeviceMemoryFigures figures() = 0;

  // Host memory that the device reads and writes while the host goes on.
  virtual void* allocate_pinned(size_t bytes) = 0;
  virtual void release_pinned(void* data) noexcept = 0;

  virtual void* default_queue() = 0;
  virtual void* make_queue() = 0;
  virtual void release_queue(void* queue) noexcept = 0;
  // Waits for all that was added to a queue; null: to all of them.
  virtual void synchronize(void* queue) = 0;
  // What is added to `queue` from now on waits for what was added to `other` until now.
  virtual void follow(void* queue, void* other) = 0;

  // Marks in queues, for whoever waits for what was added before, but not for what comes after.
  // set_mark() may be called again; wait_for() waits for the last place, if there is one.
  virtual void* make_mark() = 0;
  virtual void set_mark(void* mark, void* queue) = 0;
  virtual void wait_for(void* mark) = 0;
  virtual void release_mark(void* mark) noexcept = 0;

  // Pinned host memory must stay, unchanged, until the copy is done; from other memory the bytes
  // are taken before the call returns.
  virtual void copy_from_host(void* to, const void* host, size_t bytes, void* queue) = 0;
  // The bytes are there after synchronize(queue).
  virtual void copy_to_host(void* host, const void* from, size_t bytes, void* queue) = 0;
  virtual void copy(void* to, const void* from, size_t bytes, void* queue) = 0;
  virtual void zero(void* data, size_t bytes, void* queue) = 0;

  // Recordings of what is added to a queue, to be added again at once (CUDA: graphs). Between begin
  // and end the queue only takes note. end_recording() gives null, and never throws, where
  // something could not be recorded.
  virtual bool records() const { return false; }
  virtual void begin_recording(void*) { records_nothing(); }
  virtual void* end_recording(void*) noexcept { return nullptr; }
  virtual void replay(void*, void*) { records_nothing(); }
  virtual void release_recording(void*) noexcept {}

 private:
  [[noreturn]] static void records_nothing() {
    throw Unsupported("[device] this device records nothing");
  }
};

// Makes a device known, or replaces (null: removes) it; cached memory of the former goes back. For
// back ends: tensors of a device that goes must be gone.
void register_device_memory(Device device, std::shared_ptr<DeviceMemory> memory);
// Asks the loader where the device is not known yet. Throws Unsupported where that finds none.
DeviceMemory& memory_of(Device device);
// Registers a device that is asked for the first time, or throws Unsupported with the reason.
using DeviceLoader = void (*)(Device);
void set_device_loader(DeviceLoader loader);

// A queue of its own; ends after its work is done.
class DeviceQueue {
 public:
  explicit DeviceQueue(Device device);
  ~DeviceQueue();
  DeviceQueue(const DeviceQueue&) = delete;
  DeviceQueue& operator=(const DeviceQueue&) = delete;
  void* get() const { return queue_; }

 private:
  DeviceMemory& memory_;
  void* queue_;
};

// A mark of its own.
class DeviceMark {
 public:
  explicit DeviceMark(DeviceMemory& memory) : memory_(&memory), mark_(memory.make_mark()) {}
  ~DeviceMark() { memory_->release_mark(mark_); }
  DeviceMark(const DeviceMark&) = delete;
  DeviceMark& operator=(const DeviceMark&) = delete;
  void set(void* queue) { memory_->set_mark(mark_, queue); }
  void wait() const { memory_->wait_for(mark_); }

 private:
  DeviceMemory* memory_;
  void* mark_;
};

// Copies between any two places, behind the default queues of both; done when the call returns.
void copy_bytes(void* to, Device to_device, const void* from, Device from_device, size_t bytes);

// The queue to which a device's work is added where no other is named; null on the CPU.
void* default_queue_of(Device device);

}  // namespace lockstep
