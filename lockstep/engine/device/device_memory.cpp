#include "lockstep/engine/device/device_memory.h"

#include <atomic>
#include <cstring>
#include <map>
#include <vector>

#include "lockstep/base/threads/mutex.h"
#include "lockstep/engine/device/allocator.h"
#include "lockstep/engine/device/eager_stream.h"

namespace lockstep {
namespace {

struct Registry {
  Mutex mutex;
  std::map<Device, std::shared_ptr<DeviceMemory>> devices LOCKSTEP_GUARDED_BY(mutex);
  std::atomic<DeviceLoader> loader{nullptr};
};

Registry& registry() {
  static auto* instance = new Registry;  // outlives every static tensor
  return *instance;
}

}  // namespace

void register_device_memory(Device device, std::shared_ptr<DeviceMemory> memory) {
  if (device.is_cpu()) throw InvalidArgument("[device] the CPU has no device memory");
  bool known;
  {
    const MutexLock lock(registry().mutex);
    known = registry().devices.contains(device);
  }
  if (known) release_cached_memory(device);
  const MutexLock lock(registry().mutex);
  if (memory) {
    registry().devices[device] = std::move(memory);
  } else {
    registry().devices.erase(device);
  }
}

void set_device_loader(DeviceLoader loader) { registry().loader = loader; }

DeviceMemory& memory_of(Device device) {
  Registry& r = registry();
  for (const bool first : {true, false}) {
    {
      const MutexLock lock(r.mutex);
      const auto found = r.devices.find(device);
      if (found != r.devices.end()) return *found->second;
    }
    if (first && r.loader) r.loader.load()(device);
  }
  throw Unsupported("[device] no back end provides " + to_string(device),
                    "`lockstep info` lists the devices and why a device cannot be used");
}

DeviceStream::DeviceStream(Device device)
    : memory_(memory_of(device)), stream_(memory_.make_stream()) {}

DeviceStream::~DeviceStream() {
  try {
    memory_.synchronize(stream_);
  } catch (const std::exception&) {
    // The device has failed. Its next use throws.
  }
  memory_.release_stream(stream_);
}

void copy_bytes(void* to, Device to_device, const void* from, Device from_device, size_t bytes) {
  if (bytes == 0) return;
  if (to_device.is_cpu() && from_device.is_cpu()) {
    std::memcpy(to, from, bytes);
  } else if (from_device.is_cpu()) {
    DeviceMemory& memory = memory_of(to_device);
    void* const stream = eager_stream_of(to_device);
    memory.copy_from_host(to, from, bytes, stream);
    memory.synchronize(stream);
  } else if (to_device.is_cpu()) {
    DeviceMemory& memory = memory_of(from_device);
    void* const stream = eager_stream_of(from_device);
    memory.copy_to_host(to, from, bytes, stream);
    memory.synchronize(stream);
  } else if (to_device == from_device) {
    DeviceMemory& memory = memory_of(to_device);
    void* const stream = eager_stream_of(to_device);
    memory.copy(to, from, bytes, stream);
    memory.synchronize(stream);
  } else {
    std::vector<std::byte> between(bytes);
    copy_bytes(between.data(), {}, from, from_device, bytes);
    copy_bytes(to, to_device, between.data(), {}, bytes);
  }
}

void* default_stream_of(Device device) {
  return device.is_cpu() ? nullptr : memory_of(device).default_stream();
}

}  // namespace lockstep
