#include <cstring>

#include "lockstep/engine/kernels/cuda/shapes/layout.h"

namespace lockstep::kernels::cuda {
namespace {

// Transposes a matrix of `rows` x `columns` elements of `size` bytes.
void transpose(const std::byte* from, std::byte* to, int64_t rows, int64_t columns, size_t size) {
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) {
      std::memcpy(to + static_cast<size_t>(c * rows + r) * size,
                  from + static_cast<size_t>(r * columns + c) * size, size);
    }
  }
}

}  // namespace

Extents extents_of(const Shape& shape) {
  Extents e;
  if (shape.rank() > 0) e.outer = shape[0];
  if (shape.rank() > 1) e.channels = shape[1];
  for (int i = 2; i < shape.rank(); ++i) e.space *= shape[i];
  return e;
}

NhwcLayout::NhwcLayout(const Shape& shape, DType dtype) : element_(size_of(dtype)) {
  const Extents e = extents_of(shape);
  outer_ = e.outer;
  channels_ = e.channels;
  space_ = e.space;
}

size_t NhwcLayout::bytes() const {
  return static_cast<size_t>(outer_ * channels_ * space_) * element_;
}

// TensorSpec compares shapes and types.
bool NhwcLayout::equals(const OpaqueLayout& other) const {
  return dynamic_cast<const NhwcLayout*>(&other) != nullptr;
}

void NhwcLayout::to_row_major(const void* source, void* destination) const {
  const size_t step = static_cast<size_t>(channels_ * space_) * element_;
  for (size_t i = 0; i < static_cast<size_t>(outer_); ++i) {
    transpose(static_cast<const std::byte*>(source) + i * step,
              static_cast<std::byte*>(destination) + i * step, space_, channels_, element_);
  }
}

void NhwcLayout::from_row_major(const void* source, void* destination) const {
  const size_t step = static_cast<size_t>(channels_ * space_) * element_;
  for (size_t i = 0; i < static_cast<size_t>(outer_); ++i) {
    transpose(static_cast<const std::byte*>(source) + i * step,
              static_cast<std::byte*>(destination) + i * step, channels_, space_, element_);
  }
}

TensorSpec channels_last(const Shape& shape, DType dtype) {
  TensorSpec spec{shape, dtype, nullptr};
  if (shape.rank() < 3) return spec;
  const Extents e = extents_of(shape);
  if (e.channels > 1 && e.space > 1) spec.layout = std::make_shared<NhwcLayout>(shape, dtype);
  return spec;
}

}  // namespace lockstep::kernels::cuda
