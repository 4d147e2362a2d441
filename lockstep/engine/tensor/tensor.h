// Tensors: the values that ops take and give.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lockstep/engine/tensor/allocator.h"
#include "lockstep/engine/tensor/spec.h"

namespace lockstep {

// A handle on elements in the memory of a device. Copies share the elements. Reading from several
// threads is fine; writing needs the caller's own order. Ops keep whatever layout serves them;
// to_row_major() and to_vector() give the logical order. Work on a device's tensors is added to its
// default queue (device_memory.h); what brings elements to the host waits for it.
class Tensor {
 public:
  // No tensor at all: defined() is false.
  Tensor() = default;
  // Uninitialised elements.
  explicit Tensor(const TensorSpec& spec, Device device = {});
  Tensor(Shape shape, DType dtype, Device device = {})
      : Tensor(TensorSpec{std::move(shape), dtype, nullptr}, device) {}

  static Tensor zeros(const Shape& shape, DType dtype = DType::f32, Device device = {});
  static Tensor full(const Shape& shape, float value, Device device = {});
  static Tensor scalar(float value) { return full({}, value); }
  // Row-major from values. Throws InvalidArgument unless values.size() == shape.elements().
  static Tensor from(std::span<const float> values, const Shape& shape);
  static Tensor from(std::span<const int32_t> values, const Shape& shape);
  static Tensor from(std::span<const uint8_t> values, const Shape& shape);
  // A view of a device's memory that `owner` keeps alive.
  static Tensor view(void* data, const TensorSpec& spec, std::shared_ptr<const void> owner,
                     Device device = {});

  bool defined() const { return data_ != nullptr; }
  const TensorSpec& spec() const { return spec_; }
  const Shape& shape() const { return spec_.shape; }
  DType dtype() const { return spec_.dtype; }
  Device device() const { return device_; }
  size_t bytes() const { return spec_.bytes(); }

  // Distinguishes tensors for the tape: copies of a handle share it, nothing else does.
  uint64_t id() const { return id_; }

  // Address on the tensor's device.
  void* raw() const { return data_; }
  // The elements in row-major order. Throws InvalidArgument for another type, layout or device than
  // the CPU.
  template <class T>
  T* data() const {
    check(DTypeOf<T>::value);
    return static_cast<T*>(data_);
  }

  // This tensor where it lies on `device` already, or a row-major copy there.
  Tensor to(Device device) const;
  // This tensor, or a row-major copy where the layout is another. On a device other than the CPU by
  // way of the host: convert() (autograd/tape.h) does it there.
  Tensor to_row_major() const;
  // An independent row-major copy on the same device.
  Tensor clone() const;
  // Overwrites the elements with those of a row-major tensor of the same shape and type, on any
  // device. This one must be row-major. Throws InvalidArgument where they differ.
  void copy_from(const Tensor& other) const;
  std::vector<float> to_vector() const;
  // The only element of a tensor of one float. Throws InvalidArgument for any other.
  float item() const;
  // The same elements seen as `shape` (row-major copy first where needed).
  Tensor reshaped(const Shape& shape) const;

 private:
  void check(DType wanted) const;
  TensorSpec spec_;
  Device device_;
  void* data_ = nullptr;
  std::shared_ptr<const void> owner_;
  uint64_t id_ = 0;
};

}  // namespace lockstep
