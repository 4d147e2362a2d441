#include "lockstep/train/programs/devices/device_transfers.h"

#include <algorithm>
#include <bit>

#include "lockstep/base/numeric/alignment.h"
#include "lockstep/engine/device/eager_stream.h"

namespace lockstep {
namespace {

constexpr size_t kPinnedBlock = size_t{64} << 10;

}  // namespace

void DeviceTransfers::begin() {
  for (Block& block : blocks_) block.used = 0;
  all_.clear();
}

// Sizes differ from iteration to iteration. As powers of two few blocks serve them all.
std::byte* DeviceTransfers::memory_for(Device device, size_t bytes) {
  const size_t taken = round_up(bytes);
  auto block = std::ranges::find_if(
      blocks_, [&](const Block& known) { return known.bytes - known.used >= taken; });
  if (block == blocks_.end()) {
    const size_t size = std::max(kPinnedBlock, std::bit_ceil(taken));
    blocks_.push_back({Pinned(memory_of(device), size), size});
    block = blocks_.end() - 1;
  }
  std::byte* const at = block->memory.data() + block->used;
  block->used += taken;
  return at;
}

Tensor DeviceTransfers::send(Device device, const TensorSpec& spec,
                             const std::function<void(void* to)>& fill) {
  std::byte* const here = memory_for(device, spec.bytes());
  fill(here);
  Tensor there(spec.shape, spec.dtype, device);
  memory_of(device).copy_from_host(there.raw(), here, spec.bytes(), eager_stream_of(device));
  return there;
}

void DeviceTransfers::read(Device device, const float* from, int64_t count) {
  const size_t bytes = static_cast<size_t>(count) * sizeof(float);
  std::byte* const here = memory_for(device, bytes);
  memory_of(device).copy_to_host(here, from, bytes, eager_stream_of(device));
  all_.emplace_back(reinterpret_cast<const float*>(here), static_cast<size_t>(count));
}

}  // namespace lockstep
