// The extent of a tensor in each of its dimensions, outermost first.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

namespace lockstep {

// A small value type. Dimensions are >= 0. A shape without dimensions is a scalar (one element).
// Images are n x c x h x w (observations, channels, rows, columns). Thread-compatible.
class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<int64_t> dims) : Shape(std::vector<int64_t>(dims)) {}
  // Throws InvalidArgument if a dimension is negative or there are more than 2^59 elements.
  explicit Shape(std::vector<int64_t> dims);

  int rank() const { return static_cast<int>(dims_.size()); }
  // The extent of dimension `axis`. Negative axes count from the end. Throws InvalidArgument if
  // there is no such dimension.
  int64_t operator[](int axis) const;
  const std::vector<int64_t>& dims() const { return dims_; }

  // Product of all extents; 1 for a scalar.
  int64_t elements() const { return elements_; }

  // The same shape with dimension 0 replaced by `n`. Throws InvalidArgument on a scalar.
  Shape with_batch(int64_t n) const;
  // The shape of one observation: without dimension 0. Throws InvalidArgument on a scalar.
  Shape without_batch() const;

  // For example "128x3x32x32"; "scalar" if there are no dimensions.
  std::string to_string() const;

  friend bool operator==(const Shape& a, const Shape& b) { return a.dims_ == b.dims_; }

 private:
  std::vector<int64_t> dims_;
  int64_t elements_ = 1;
};

}  // namespace lockstep
