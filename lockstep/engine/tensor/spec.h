// Description of a tensor's memory: shape, element type and layout.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "lockstep/base/numeric/dtype.h"
#include "lockstep/base/numeric/shape.h"

namespace lockstep {

// An element layout that only its back end understands (blocked, padded, permuted). Immutable.
class OpaqueLayout {
 public:
  virtual ~OpaqueLayout() = default;
  virtual size_t bytes() const = 0;
  virtual bool equals(const OpaqueLayout& other) const = 0;
  virtual std::string to_string() const = 0;
  // Copies a tensor in this layout from or to row-major memory of the same shape and type. Both
  // must lie in host memory, also for a device's layout. The back end's reorder() converts on the
  // device.
  virtual void to_row_major(const void* source, void* destination) const = 0;
  virtual void from_row_major(const void* source, void* destination) const = 0;
};

// Shape, dtype and layout. Without `layout`, elements are row-major: the last dimension varies
// fastest and there is no padding. Value type, thread-compatible.
struct TensorSpec {
  Shape shape;
  DType dtype = DType::f32;
  std::shared_ptr<const OpaqueLayout> layout;

  bool row_major() const { return layout == nullptr; }
  // Size of the memory, padding included.
  size_t bytes() const {
    return layout ? layout->bytes() : static_cast<size_t>(shape.elements()) * size_of(dtype);
  }
  // The same shape and type in row-major order.
  TensorSpec plain() const { return {shape, dtype, nullptr}; }
  // For example "128x3x32x32 f32", followed by the layout's name unless row-major.
  std::string to_string() const;

  friend bool operator==(const TensorSpec& a, const TensorSpec& b);
};

}  // namespace lockstep
