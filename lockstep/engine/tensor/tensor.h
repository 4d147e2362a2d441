// Tensors: the inputs and outputs of ops.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/numeric/dtype.h"
#include "lockstep/engine/tensor/spec.h"

namespace lockstep {

// A handle on elements in a device's memory. Copies share the elements. Several threads may read;
// the caller must synchronize writes. Ops keep the layout that suits them; to_row_major() and
// to_vector() return the elements in logical order. Work on a device is added to the thread's
// stream, usually the device's default stream. Functions that copy to the host wait for that work.
class Tensor {
 public:
  // An undefined tensor: defined() is false.
  Tensor() = default;
  // Uninitialized elements.
  explicit Tensor(const TensorSpec& spec, Device device = {});
  Tensor(Shape shape, DType dtype, Device device = {})
      : Tensor(TensorSpec{std::move(shape), dtype, nullptr}, device) {}

  static Tensor zeros(const Shape& shape, DType dtype = DType::f32, Device device = {});
  static Tensor full(const Shape& shape, float value, Device device = {});
  static Tensor scalar(float value) { return full({}, value); }
  // A row-major copy of `values`. Throws InvalidArgument unless values.size() == shape.elements().
  static Tensor from(std::span<const float> values, const Shape& shape);
  static Tensor from(std::span<const int32_t> values, const Shape& shape);
  static Tensor from(std::span<const int64_t> values, const Shape& shape);
  static Tensor from(std::span<const uint8_t> values, const Shape& shape);
  // A view of memory on `device` that `owner` keeps alive.
  static Tensor view(void* data, const TensorSpec& spec, std::shared_ptr<const void> owner,
                     Device device = {});

  bool defined() const { return data_ != nullptr; }
  const TensorSpec& spec() const { return spec_; }
  const Shape& shape() const { return spec_.shape; }
  DType dtype() const { return spec_.dtype; }
  Device device() const { return device_; }
  size_t bytes() const { return spec_.bytes(); }

  // Identifies the tensor on the tape. Only copies of a handle share an id.
  uint64_t id() const { return id_; }

  // Address on the tensor's device.
  void* raw() const { return data_; }
  // The elements in row-major order. Throws InvalidArgument if the tensor has another type, has an
  // opaque layout or is not on the CPU.
  template <class T>
  T* data() const {
    check(DTypeOf<T>::value);
    return static_cast<T*>(data_);
  }

  // This tensor if it is on `device` already, else a row-major copy there.
  Tensor to(Device device) const;
  // This tensor if it is row-major, else a row-major copy. Tensors on other devices are converted
  // on the host; convert() (autograd/tape.h) converts on the device.
  Tensor to_row_major() const;
  // An independent row-major copy on the same device.
  Tensor clone() const;
  // Overwrites the elements with those of `other`, which may be on any device. Both must be
  // row-major and have the same shape and type. Throws InvalidArgument otherwise.
  void copy_from(const Tensor& other) const;
  std::vector<float> to_vector() const;
  // The element of a tensor with a single f32 element. Throws InvalidArgument for other tensors.
  float item() const;
  // A view of the elements as `shape`, recorded by tapes. Makes a row-major copy first if needed.
  Tensor reshaped(const Shape& shape) const;

 private:
  friend Tensor reshaped_unrecorded(const Tensor& tensor, const Shape& shape);
  void check(DType wanted) const;
  TensorSpec spec_;
  Device device_;
  void* data_ = nullptr;
  std::shared_ptr<const void> owner_;
  uint64_t id_ = 0;
};

}  // namespace lockstep
