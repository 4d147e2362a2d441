// Memory of devices other than the CPU: the interface that a back end implements, and the registry
// of back ends.
//
// Work on a device is added to streams, and each stream runs its work in order. Each device has one
// default stream for eager work (see also eager_stream.h): ops, conversions, copies. Memory
// returned to the cache may be handed out again while work in the default stream still reads it.
// Code that uses another stream must therefore order its work after the default stream, and order
// later work of the default stream (or of the host) after its own.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/base/numeric/dtype.h"

namespace lockstep {

struct DeviceMemoryFigures {
  size_t free = 0, total = 0;  // bytes
};

// One device. Thread-safe. Functions that fail throw Error. Addresses are in the device's memory
// unless noted otherwise. `stream` comes from make_stream() or default_stream(); work is added to
// it without waiting. Each function makes the device current for the calling thread if the back end
// requires it.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;

  // Makes this the current device of the calling thread: kernels are made for it and run on it.
  virtual void activate() = 0;

  // Returns memory aligned to 256 bytes, or null if there is not enough. device/allocator.h caches
  // it.
  virtual void* allocate(size_t bytes) = 0;
  virtual void release(void* data) noexcept = 0;
  virtual DeviceMemoryFigures figures() = 0;

  // Pinned host memory, which the device can read and write while the host continues.
  virtual void* allocate_pinned(size_t bytes) = 0;
  virtual void release_pinned(void* data) noexcept = 0;

  virtual void* default_stream() = 0;
  virtual void* make_stream() = 0;
  virtual void release_stream(void* stream) noexcept = 0;
  // Waits for all work that was added to `stream`, or to any stream if `stream` is null.
  virtual void synchronize(void* stream) = 0;
  // Work added to `stream` from now on waits for the work added to `other` so far.
  virtual void follow(void* stream, void* other) = 0;

  // Marks are positions in streams: wait_for() waits for the work that was added before the mark,
  // but not for later work. set_mark() may be called again; wait_for() uses the last position and
  // returns at once if there is none.
  virtual void* make_mark() = 0;
  virtual void set_mark(void* mark, void* stream) = 0;
  virtual void wait_for(void* mark) = 0;
  virtual void release_mark(void* mark) noexcept = 0;

  // Pinned host memory must stay valid and unchanged until the copy is done. Other host memory is
  // read before the call returns.
  virtual void copy_from_host(void* to, const void* host, size_t bytes, void* stream) = 0;
  // The bytes are valid after synchronize(stream).
  virtual void copy_to_host(void* host, const void* from, size_t bytes, void* stream) = 0;
  virtual void copy(void* to, const void* from, size_t bytes, void* stream) = 0;
  virtual void zero(void* data, size_t bytes, void* stream) = 0;

  // Recordings capture work that is added to a stream, to replay it later in one call (CUDA
  // graphs). Between begin and end, work is recorded but not run. end_recording() never throws. It
  // returns null, with the reason, if something could not be recorded.
  virtual bool records() const { return false; }
  virtual void begin_recording(void*) { records_nothing(); }
  virtual void* end_recording(void*, std::string& /*reason*/) noexcept { return nullptr; }
  virtual void replay(void*, void*) { records_nothing(); }
  virtual void release_recording(void*) noexcept {}

 private:
  [[noreturn]] static void records_nothing() {
    throw Unsupported("[device] this device does not support recordings");
  }
};

// Registers a device or replaces it; null removes it. Cached memory of the previous one is
// released. For back ends. The device's tensors must be destroyed before it is removed.
void register_device_memory(Device device, std::shared_ptr<DeviceMemory> memory);
// Calls the loader if the device is not registered yet. Throws Unsupported if it stays unknown.
DeviceMemory& memory_of(Device device);
// Registers a device at its first use, or throws Unsupported with the reason.
using DeviceLoader = void (*)(Device);
void set_device_loader(DeviceLoader loader);

// Owns a stream. The destructor waits for the stream's work.
class DeviceStream {
 public:
  explicit DeviceStream(Device device);
  ~DeviceStream();
  DeviceStream(const DeviceStream&) = delete;
  DeviceStream& operator=(const DeviceStream&) = delete;
  void* get() const { return stream_; }

 private:
  DeviceMemory& memory_;
  void* stream_;
};

// Owns a mark.
class DeviceMark {
 public:
  explicit DeviceMark(DeviceMemory& memory) : memory_(&memory), mark_(memory.make_mark()) {}
  ~DeviceMark() { memory_->release_mark(mark_); }
  DeviceMark(const DeviceMark&) = delete;
  DeviceMark& operator=(const DeviceMark&) = delete;
  void set(void* stream) { memory_->set_mark(mark_, stream); }
  void wait() const { memory_->wait_for(mark_); }

 private:
  DeviceMemory* memory_;
  void* mark_;
};

// Copies between any two devices, in order after the work in both default streams. The copy is
// complete when the call returns.
void copy_bytes(void* to, Device to_device, const void* from, Device from_device, size_t bytes);

// The device's default stream; null on the CPU.
void* default_stream_of(Device device);

}  // namespace lockstep
