#include "lockstep/data/batches/mini_batch_tensors.h"

#include <algorithm>

#include "lockstep/engine/device/devices.h"

namespace lockstep {

MiniBatchTensors::MiniBatchTensors(const std::string& device, size_t ahead)
    : device_(kernels::resolve_device(device)) {
  if (device_.is_cpu()) return;
  constexpr size_t kMostStreams = 8;
  memory_ = &memory_of(device_);
  for (size_t i = 0; i < std::min(ahead, kMostStreams); ++i) {
    streams_.push_back(std::make_unique<DeviceStream>(device_));
  }
}

void* MiniBatchTensors::stream_of(int64_t number) const {
  return streams_[static_cast<size_t>(number) % streams_.size()]->get();
}

// The host's memory is not pinned, so the device has read it when the copy returns.
Tensor MiniBatchTensors::on_device(const RowArray& array, void* stream) const {
  const Tensor tensor(array.tensor_spec(), device_);
  // Work for an earlier owner of the memory may still be in the default stream.
  memory_->follow(stream, memory_->default_stream());
  memory_->copy_from_host(tensor.raw(), array.bytes.data(), tensor.bytes(), stream);
  return tensor;
}

void MiniBatchTensors::make(MiniBatch& batch, int64_t number) {
  batch.tensors.clear();
  for (RowArray& array : batch.arrays) {
    batch.tensors.push_back(memory_
                                ? on_device(array, stream_of(number))
                                : Tensor::view(array.bytes.data(), array.tensor_spec(), nullptr));
  }
}

void MiniBatchTensors::join(int64_t number) {
  if (memory_) memory_->follow(memory_->default_stream(), stream_of(number));
}

}  // namespace lockstep
