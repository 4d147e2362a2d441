// Many copies within a device's memory, added as one launch.
#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/engine/device/allocator.h"
#include "lockstep/engine/kernels/backends/functions.h"
#include "lockstep/engine/kernels/shapes/copy_chunks.h"

namespace lockstep {

// One thread at a time.
class ChunkList {
 public:
  ChunkList() = default;
  // Sends the list to the device by its default stream. Long chunks are divided.
  ChunkList(Device device, const std::vector<kernels::CopyChunk>& chunks);

  // Adds the copies to a stream, which comes after the default stream's work so far.
  void add(const kernels::Functions& functions, void* stream) const;

 private:
  Memory list_;
  int64_t count_ = 0;
};

// Sends numbers to the device's memory by its default stream, without waiting.
Memory sent_to(Device device, const void* data, size_t bytes);
template <class Entry>
Memory sent_to(Device device, const std::vector<Entry>& entries) {
  return sent_to(device, entries.data(), entries.size() * sizeof(Entry));
}

}  // namespace lockstep
