#include "lockstep/engine/device/eager_stream.h"

#include <cstring>

namespace lockstep {
namespace {

thread_local const EagerStream* newest = nullptr;

}  // namespace

EagerStream::EagerStream(Device device, void* stream)
    : device_(device), stream_(stream), before_(newest) {
  newest = this;
}

EagerStream::~EagerStream() { newest = before_; }

void* EagerStream::of_thread(Device device) {
  for (const EagerStream* s = newest; s != nullptr; s = s->before_) {
    if (s->device_ == device) return s->stream_;
  }
  return nullptr;
}

void* eager_stream_of(Device device) {
  void* const own = EagerStream::of_thread(device);
  return own != nullptr ? own : memory_of(device).default_stream();
}

void eager_copy(Device device, void* to, const void* from, size_t bytes) {
  if (device.is_cpu()) {
    std::memcpy(to, from, bytes);
  } else {
    memory_of(device).copy(to, from, bytes, eager_stream_of(device));
  }
}

void eager_zero(Device device, void* to, size_t bytes) {
  if (bytes == 0) return;
  if (device.is_cpu()) {
    std::memset(to, 0, bytes);
  } else {
    memory_of(device).zero(to, bytes, eager_stream_of(device));
  }
}

StreamForEager::~StreamForEager() {
  try {
    memory_of(device_).synchronize(stream_.get());
  } catch (const std::exception&) {
    // The device has failed. Its next use throws.
  }
  release_stream_memory(device_, stream_.get());
}

}  // namespace lockstep
