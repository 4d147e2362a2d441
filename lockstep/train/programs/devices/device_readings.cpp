#include "lockstep/train/programs/devices/device_readings.h"

#include <algorithm>

#include "lockstep/engine/device/eager_stream.h"

namespace lockstep {
namespace {

constexpr size_t kPiece = size_t{64} << 10;

}  // namespace

void DeviceReadings::begin() {
  for (Piece& piece : pieces_) piece.used = 0;
  piece_ = 0;
  all_.clear();
}

std::byte* DeviceReadings::memory_for(Device device, size_t bytes) {
  while (piece_ < pieces_.size() && pieces_[piece_].bytes - pieces_[piece_].used < bytes) ++piece_;
  if (piece_ == pieces_.size()) {
    const size_t size = std::max(kPiece, bytes);
    pieces_.push_back({Pinned(memory_of(device), size), size});
  }
  Piece& piece = pieces_[piece_];
  std::byte* const at = piece.memory.data() + piece.used;
  piece.used += bytes;
  return at;
}

void DeviceReadings::add(Device device, const float* from, int64_t count) {
  const size_t bytes = static_cast<size_t>(count) * sizeof(float);
  std::byte* const here = memory_for(device, bytes);
  memory_of(device).copy_to_host(here, from, bytes, eager_stream_of(device));
  all_.emplace_back(reinterpret_cast<const float*>(here), static_cast<size_t>(count));
}

}  // namespace lockstep
