#include "lockstep/data/batches/mini_batch_tensors.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/engine/device/devices.h"

namespace lockstep {
namespace {

// The shape of the rows of one input or of the targets.
Shape shape_of(int64_t rows, size_t elements, const CachedValue* value, const std::string& what) {
  const auto count = static_cast<int64_t>(elements);
  if (value != nullptr && count == rows * value->elements()) {
    std::vector<int64_t> dims = value->shape.dims();
    dims.insert(dims.begin(), rows);
    return Shape(std::move(dims));
  }
  if (rows > 0 && count % rows == 0) return {rows, count / rows};
  throw InvalidArgument("[mini-batch queue] the " + what + " have " + std::to_string(count) +
                            " elements for " + std::to_string(rows) + " labels",
                        "a preprocess function that changes the number of rows must change labels, "
                        "inputs and targets alike");
}

}  // namespace

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
Tensor MiniBatchTensors::on_device(const void* host, const Shape& shape, DType dtype,
                                   void* stream) const {
  const Tensor tensor(shape, dtype, device_);
  // Work for an earlier owner of the memory may still be in the default stream.
  memory_->follow(stream, memory_->default_stream());
  memory_->copy_from_host(tensor.raw(), host, tensor.bytes(), stream);
  return tensor;
}

void MiniBatchTensors::make(MiniBatch& batch, int64_t number,
                            const std::vector<CachedValue>& inputs, const CachedValue* target) {
  batch.tensors.clear();
  void* const stream = memory_ ? stream_of(number) : nullptr;
  const auto rows = static_cast<int64_t>(batch.labels.size());
  const auto add = [&](const void* host, const Shape& shape, DType dtype) {
    batch.tensors.push_back(
        memory_ ? on_device(host, shape, dtype, stream)
                : Tensor::view(const_cast<void*>(host), {shape, dtype, nullptr}, nullptr));
  };
  for (size_t k = 0; k < batch.inputs.size(); ++k) {
    const MiniBatchValues& values = batch.inputs[k];
    const Shape shape = shape_of(rows, values.elements(), k < inputs.size() ? &inputs[k] : nullptr,
                                 "values of input " + std::to_string(k + 1));
    add(values.bytes().data(), shape, values.values.empty() ? DType::u8 : DType::f32);
  }
  const MiniBatchValues& targets = batch.targets;
  if (targets.elements() == 0) return add(batch.labels.data(), {rows}, DType::i32);
  const Shape shape = shape_of(rows, targets.elements(), target, "targets");
  if (!targets.values.empty()) return add(targets.values.data(), shape, DType::f32);
  const Tensor scaled(shape, DType::f32);
  std::transform(targets.pixels.begin(), targets.pixels.end(), scaled.data<float>(),
                 [](uint8_t pixel) { return static_cast<float>(pixel) / 255.0f; });
  if (!memory_) return batch.tensors.push_back(scaled);
  add(scaled.raw(), shape, DType::f32);
}

void MiniBatchTensors::join(int64_t number) {
  if (memory_) memory_->follow(memory_->default_stream(), stream_of(number));
}

}  // namespace lockstep
