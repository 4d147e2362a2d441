#include "lockstep/train/programs/devices/device_readings.h"

#include <algorithm>

#include "lockstep/engine/device/eager_stream.h"

namespace lockstep {
namespace {

constexpr size_t kPinnedBlock = size_t{64} << 10;

}  // namespace

void DeviceReadings::begin() {
  for (Block& block : blocks_) block.used = 0;
  block_ = 0;
  all_.clear();
}

std::byte* DeviceReadings::memory_for(Device device, size_t bytes) {
  while (block_ < blocks_.size() && blocks_[block_].bytes - blocks_[block_].used < bytes) ++block_;
  if (block_ == blocks_.size()) {
    const size_t size = std::max(kPinnedBlock, bytes);
    blocks_.push_back({Pinned(memory_of(device), size), size});
  }
  Block& block = blocks_[block_];
  std::byte* const at = block.memory.data() + block.used;
  block.used += bytes;
  return at;
}

void DeviceReadings::add(Device device, const float* from, int64_t count) {
  const size_t bytes = static_cast<size_t>(count) * sizeof(float);
  std::byte* const here = memory_for(device, bytes);
  memory_of(device).copy_to_host(here, from, bytes, eager_stream_of(device));
  all_.emplace_back(reinterpret_cast<const float*>(here), static_cast<size_t>(count));
}

}  // namespace lockstep
