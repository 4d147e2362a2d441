#include "lockstep/engine/tensor/tensor.h"

#include <algorithm>
#include <atomic>

#include "lockstep/base/error.h"
#include "lockstep/engine/device/allocator.h"
#include "lockstep/engine/device/device_memory.h"
#include "lockstep/engine/device/eager_stream.h"
#include "lockstep/engine/tensor/reshape.h"

namespace lockstep {
namespace {

std::atomic<ReshapeRecorder> reshape_recorder{nullptr};

uint64_t next_id() {
  static std::atomic<uint64_t> counter{0};
  return ++counter;
}

template <class T>
Tensor from_values(std::span<const T> values, const Shape& shape) {
  if (static_cast<int64_t>(values.size()) != shape.elements()) {
    throw InvalidArgument("[tensor] " + std::to_string(values.size()) +
                          " values do not fit the shape " + shape.to_string());
  }
  Tensor tensor(shape, DTypeOf<T>::value);
  std::copy(values.begin(), values.end(), tensor.data<T>());
  return tensor;
}

}  // namespace

Tensor::Tensor(const TensorSpec& spec, Device device)
    : spec_(spec), device_(device), id_(next_id()) {
  auto memory = std::make_shared<Memory>(allocate(std::max<size_t>(spec.bytes(), 1), device));
  data_ = memory->data();
  owner_ = std::move(memory);
}

Tensor Tensor::zeros(const Shape& shape, DType dtype, Device device) {
  Tensor tensor(shape, dtype, device);
  eager_zero(device, tensor.data_, tensor.bytes());
  return tensor;
}

Tensor Tensor::full(const Shape& shape, float value, Device device) {
  Tensor tensor(shape, DType::f32);
  std::fill_n(tensor.data<float>(), shape.elements(), value);
  return tensor.to(device);
}

Tensor Tensor::from(std::span<const float> values, const Shape& shape) {
  return from_values(values, shape);
}
Tensor Tensor::from(std::span<const int32_t> values, const Shape& shape) {
  return from_values(values, shape);
}
Tensor Tensor::from(std::span<const int64_t> values, const Shape& shape) {
  return from_values(values, shape);
}
Tensor Tensor::from(std::span<const uint8_t> values, const Shape& shape) {
  return from_values(values, shape);
}

Tensor Tensor::view(void* data, const TensorSpec& spec, std::shared_ptr<const void> owner,
                    Device device) {
  Tensor tensor;
  tensor.spec_ = spec;
  tensor.device_ = device;
  tensor.data_ = data;
  tensor.owner_ = std::move(owner);
  tensor.id_ = next_id();
  return tensor;
}

Tensor Tensor::to(Device device) const {
  if (!defined() || device == device_) return *this;
  if (spec_.row_major()) {
    Tensor copy(spec_, device);
    copy_bytes(copy.data_, device, data_, device_, bytes());
    return copy;
  }
  if (device_.is_cpu()) return clone().to(device);
  // Layouts convert in host memory only.
  std::vector<std::byte> there(bytes());
  copy_bytes(there.data(), {}, data_, device_, bytes());
  Tensor plain(spec_.plain());
  spec_.layout->to_row_major(there.data(), plain.data_);
  return plain.to(device);
}

Tensor Tensor::to_row_major() const { return spec_.row_major() ? *this : clone(); }

Tensor Tensor::clone() const {
  if (!defined()) return {};
  if (!spec_.row_major() && !device_.is_cpu()) return to({}).to(device_);
  Tensor copy(spec_.plain(), device_);
  if (spec_.row_major()) {
    copy_bytes(copy.data_, device_, data_, device_, bytes());
  } else {
    spec_.layout->to_row_major(data_, copy.data_);
  }
  return copy;
}

void Tensor::copy_from(const Tensor& other) const {
  if (!defined() || !other.defined() || !(spec_ == other.spec_) || !spec_.row_major()) {
    const auto name = [](const Tensor& t) {
      return t.defined() ? t.spec_.to_string() : "an undefined tensor";
    };
    throw InvalidArgument("[tensor] elements of " + name(other) + " cannot be copied into " +
                          name(*this));
  }
  copy_bytes(data_, device_, other.data_, other.device_, bytes());
}

std::vector<float> Tensor::to_vector() const {
  const Tensor plain = to({}).to_row_major();
  const float* values = plain.data<float>();
  return {values, values + shape().elements()};
}

float Tensor::item() const {
  if (!defined() || shape().elements() != 1) {
    throw InvalidArgument("[tensor] item() needs exactly one element, but this tensor has shape " +
                          shape().to_string());
  }
  return *to({}).to_row_major().data<float>();
}

Tensor Tensor::reshaped(const Shape& shape) const {
  Tensor result = reshaped_unrecorded(*this, shape);
  if (const ReshapeRecorder recorder = reshape_recorder.load()) recorder(*this, result);
  return result;
}

Tensor reshaped_unrecorded(const Tensor& tensor, const Shape& shape) {
  if (shape.elements() != tensor.shape().elements()) {
    throw InvalidArgument("[tensor] " + tensor.shape().to_string() + " cannot be reshaped to " +
                          shape.to_string() + ": the numbers of elements differ");
  }
  const Tensor plain = tensor.to_row_major();
  return Tensor::view(plain.data_, {shape, plain.dtype(), nullptr}, plain.owner_, plain.device_);
}

void set_reshape_recorder(ReshapeRecorder recorder) { reshape_recorder = recorder; }

void Tensor::check(DType wanted) const {
  if (!defined()) throw InvalidArgument("[tensor] an undefined tensor has no elements");
  if (dtype() != wanted || !spec_.row_major()) {
    throw InvalidArgument("[tensor] expected row-major " + std::string(name_of(wanted)) +
                          " elements, but this tensor is " + spec_.to_string());
  }
  if (!device_.is_cpu()) {
    throw InvalidArgument("[tensor] the elements of " + spec_.to_string() + " are on " +
                              lockstep::to_string(device_) + ", which the host cannot access",
                          "copy them first: tensor.to({}), or to_vector()");
  }
}

}  // namespace lockstep
