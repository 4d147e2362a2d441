// What a tensor's memory looks like: shape, type of the elements, and their placement.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "lockstep/base/dtype.h"
#include "lockstep/base/shape.h"

namespace lockstep {

// A placement of elements that only a back end understands (blocked, padded, permuted). Immutable.
class OpaqueLayout {
 public:
  virtual ~OpaqueLayout() = default;
  virtual size_t bytes() const = 0;
  virtual bool equals(const OpaqueLayout& other) const = 0;
  virtual std::string to_string() const = 0;
  // Copies a tensor in this layout from or to row-major memory of the same shape and type. Both lie
  // in the host's memory, whatever the back end: on a device its reorder() does it.
  virtual void to_row_major(const void* source, void* destination) const = 0;
  virtual void from_row_major(const void* source, void* destination) const = 0;
};

// Shape, dtype and layout together. Without `layout` elements are row-major: the last dimension
// varies fastest, nothing is padded. Value type, thread-compatible.
struct TensorSpec {
  Shape shape;
  DType dtype = DType::f32;
  std::shared_ptr<const OpaqueLayout> layout;

  bool row_major() const { return layout == nullptr; }
  // Size of the memory, padding included.
  size_t bytes() const {
    return layout ? layout->bytes() : static_cast<size_t>(shape.elements()) * size_of(dtype);
  }
  // The same shape and type, row-major.
  TensorSpec plain() const { return {shape, dtype, nullptr}; }
  // "128x3x32x32 f32", with the layout's name where it is not row-major.
  std::string to_string() const;

  friend bool operator==(const TensorSpec& a, const TensorSpec& b);
};

}  // namespace lockstep
