#include "lockstep/engine/tensor/tensor.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

uint64_t next_id() {
  static std::atomic<uint64_t> counter{0};
  return ++counter;
}

template <class T>
Tensor from_values(std::span<const T> values, const Shape& shape) {
  if (static_cast<int64_t>(values.size()) != shape.elements()) {
    throw InvalidArgument("[tensor] " + std::to_string(values.size()) + " values do not fill " +
                          shape.to_string());
  }
  Tensor tensor(shape, DTypeOf<T>::value);
  std::copy(values.begin(), values.end(), tensor.data<T>());
  return tensor;
}

}  // namespace

Tensor::Tensor(const TensorSpec& spec) : spec_(spec), id_(next_id()) {
  auto memory = std::make_shared<Memory>(allocate(std::max<size_t>(spec.bytes(), 1)));
  data_ = memory->data();
  owner_ = std::move(memory);
}

Tensor Tensor::zeros(const Shape& shape, DType dtype) {
  Tensor tensor(shape, dtype);
  std::memset(tensor.data_, 0, tensor.bytes());
  return tensor;
}

Tensor Tensor::full(const Shape& shape, float value) {
  Tensor tensor(shape, DType::f32);
  std::fill_n(tensor.data<float>(), shape.elements(), value);
  return tensor;
}

Tensor Tensor::from(std::span<const float> values, const Shape& shape) {
  return from_values(values, shape);
}
Tensor Tensor::from(std::span<const int32_t> values, const Shape& shape) {
  return from_values(values, shape);
}
Tensor Tensor::from(std::span<const uint8_t> values, const Shape& shape) {
  return from_values(values, shape);
}

Tensor Tensor::view(void* data, const TensorSpec& spec, std::shared_ptr<const void> owner) {
  Tensor tensor;
  tensor.spec_ = spec;
  tensor.data_ = data;
  tensor.owner_ = std::move(owner);
  tensor.id_ = next_id();
  return tensor;
}

Tensor Tensor::to_row_major() const { return spec_.row_major() ? *this : clone(); }

Tensor Tensor::clone() const {
  if (!defined()) return {};
  Tensor copy(spec_.plain());
  if (spec_.row_major()) {
    std::memcpy(copy.data_, data_, bytes());
  } else {
    spec_.layout->to_row_major(data_, copy.data_);
  }
  return copy;
}

std::vector<float> Tensor::to_vector() const {
  const Tensor plain = to_row_major();
  const float* values = plain.data<float>();
  return {values, values + shape().elements()};
}

float Tensor::item() const {
  if (!defined() || shape().elements() != 1) {
    throw InvalidArgument("[tensor] item() needs exactly one element, this has shape " +
                          shape().to_string());
  }
  return *to_row_major().data<float>();
}

Tensor Tensor::reshaped(const Shape& shape) const {
  if (shape.elements() != spec_.shape.elements()) {
    throw InvalidArgument("[tensor] " + spec_.shape.to_string() + " cannot be seen as " +
                          shape.to_string() + ": the numbers of elements differ");
  }
  const Tensor plain = to_row_major();
  return view(plain.data_, {shape, dtype(), nullptr}, plain.owner_);
}

void Tensor::check(DType wanted) const {
  if (!defined()) throw InvalidArgument("[tensor] an undefined tensor has no elements");
  if (dtype() != wanted || !spec_.row_major()) {
    throw InvalidArgument("[tensor] row-major " + std::string(name_of(wanted)) +
                          " elements wanted, this tensor is " + spec_.to_string());
  }
}

}  // namespace lockstep
