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

// A handle on elements in memory. Copies share the elements. Reading from several threads is fine;
// writing needs the caller's own order. Ops keep whatever layout serves them; to_row_major() and
// to_vector() give the logical order.
class Tensor {
 public:
  // No tensor at all: defined() is false.
  Tensor() = default;
  // Uninitialised elements.
  explicit Tensor(const TensorSpec& spec);
  Tensor(Shape shape, DType dtype) : Tensor(TensorSpec{std::move(shape), dtype, nullptr}) {}

  static Tensor zeros(const Shape& shape, DType dtype = DType::f32);
  static Tensor full(const Shape& shape, float value);
  static Tensor scalar(float value) { return full({}, value); }
  // Row-major from values. Throws InvalidArgument unless values.size() == shape.elements().
  static Tensor from(std::span<const float> values, const Shape& shape);
  static Tensor from(std::span<const int32_t> values, const Shape& shape);
  static Tensor from(std::span<const uint8_t> values, const Shape& shape);
  // A view of memory that `owner` keeps alive.
  static Tensor view(void* data, const TensorSpec& spec, std::shared_ptr<const void> owner);

  bool defined() const { return data_ != nullptr; }
  const TensorSpec& spec() const { return spec_; }
  const Shape& shape() const { return spec_.shape; }
  DType dtype() const { return spec_.dtype; }
  Device device() const { return {}; }
  size_t bytes() const { return spec_.bytes(); }

  // Distinguishes tensors for the tape: copies of a handle share it, nothing else does.
  uint64_t id() const { return id_; }

  void* raw() const { return data_; }
  // The elements in row-major order. Throws InvalidArgument for another type or layout.
  template <class T>
  T* data() const {
    check(DTypeOf<T>::value);
    return static_cast<T*>(data_);
  }

  // This tensor, or a row-major copy where the layout is another.
  Tensor to_row_major() const;
  // An independent row-major copy.
  Tensor clone() const;
  std::vector<float> to_vector() const;
  // The only element of a tensor of one float. Throws InvalidArgument for any other.
  float item() const;
  // The same elements seen as `shape` (row-major copy first where needed).
  Tensor reshaped(const Shape& shape) const;

 private:
  void check(DType wanted) const;
  TensorSpec spec_;
  void* data_ = nullptr;
  std::shared_ptr<const void> owner_;
  uint64_t id_ = 0;
};

}  // namespace lockstep
