#include "lockstep/train/programs/devices/chunk_list.h"

#include <algorithm>

#include "lockstep/engine/device/device_memory.h"
#include "lockstep/engine/kernels/backends/functions.h"

namespace lockstep {

ChunkList::ChunkList(Device device, const std::vector<kernels::CopyChunk>& chunks) {
  std::vector<kernels::CopyChunk> divided;
  for (const kernels::CopyChunk& whole : chunks) {
    const auto* const from = static_cast<const std::byte*>(whole.from);
    auto* const to = static_cast<std::byte*>(whole.to);
    for (int64_t first = 0; first < whole.bytes; first += kernels::kCopyChunk) {
      const int64_t bytes = std::min(kernels::kCopyChunk, whole.bytes - first);
      divided.push_back({from + first, to + first, bytes});
    }
  }
  count_ = static_cast<int64_t>(divided.size());
  list_ = sent_to(device, divided);
}

void ChunkList::add(const kernels::Functions& functions, void* stream) const {
  functions.copy_chunks(static_cast<const kernels::CopyChunk*>(list_.data()), count_, stream);
}

Memory sent_to(Device device, const void* data, size_t bytes) {
  Memory there = allocate(bytes, device);
  DeviceMemory& memory = memory_of(device);
  if (bytes > 0) memory.copy_from_host(there.data(), data, bytes, memory.default_stream());
  return there;
}

}  // namespace lockstep
