// The extent of a tensor in each of its dimensions, outermost first.
#pragma once

#include <algorithm>
#include <array>
#include <compare>
#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

// A list of dimensions that allocates memory only if it is long: ops on small tensors copy shapes
// all the time.
class Dims {
 public:
  using value_type = int64_t;
  using size_type = size_t;
  using const_iterator = const int64_t*;
  using iterator = const_iterator;

  Dims() = default;
  explicit Dims(std::span<const int64_t> dims);
  Dims(const std::vector<int64_t>& dims) : Dims(std::span(dims)) {}
  Dims(const Dims& other) : size_(other.size_), short_(other.short_) {
    if (other.long_) *this = Dims(std::span(other));
  }
  Dims(Dims&& other) noexcept
      : size_(std::exchange(other.size_, 0)), short_(other.short_), long_(std::move(other.long_)) {}
  Dims& operator=(const Dims& other) { return *this = Dims(other); }
  Dims& operator=(Dims&& other) noexcept {
    size_ = std::exchange(other.size_, 0);
    short_ = other.short_;
    long_ = std::move(other.long_);
    return *this;
  }
  operator std::vector<int64_t>() const { return {begin(), end()}; }

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  const int64_t* data() const { return long_ ? long_.get() : short_.data(); }
  const int64_t* begin() const { return data(); }
  const int64_t* end() const { return data() + size_; }
  int64_t front() const { return *begin(); }
  int64_t back() const { return end()[-1]; }
  int64_t operator[](size_t i) const { return data()[i]; }

  friend bool operator==(const Dims& a, const Dims& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end());
  }
  friend auto operator<=>(const Dims& a, const Dims& b) {
    return std::lexicographical_compare_three_way(a.begin(), a.end(), b.begin(), b.end());
  }

 private:
  static constexpr size_t kShort = 5;  // images and volumes
  size_t size_ = 0;
  std::array<int64_t, kShort> short_ = {};
  std::unique_ptr<int64_t[]> long_;  // null: they lie in short_
};

// A small value type. Dimensions are >= 0. A shape without dimensions is a scalar (one element).
// Images are n x c x h x w (observations, channels, rows, columns). Thread-compatible.
class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<int64_t> dims) : Shape(std::span(dims.begin(), dims.size())) {}
  // Throws InvalidArgument if a dimension is negative or there are more than 2^59 elements.
  explicit Shape(const std::vector<int64_t>& dims) : Shape(std::span(dims)) {}
  explicit Shape(const Dims& dims) : dims_(dims) { count(); }
  // A template, so that {first, last} is a vector.
  template <std::same_as<std::span<const int64_t>> Span>
  explicit Shape(Span dims) : dims_(dims) {
    count();
  }

  int rank() const { return static_cast<int>(dims_.size()); }
  // The extent of dimension `axis`. Negative axes count from the end. Throws InvalidArgument if
  // there is no such dimension.
  int64_t operator[](int axis) const;
  const Dims& dims() const { return dims_; }

  // Product of all extents; 1 for a scalar.
  int64_t elements() const { return elements_; }

  // The same shape with dimension 0 replaced by `n`. Throws InvalidArgument on a scalar.
  Shape with_batch(int64_t n) const;
  // The shape of one observation: without dimension 0. Throws InvalidArgument on a scalar.
  Shape without_batch() const;

  // For example "128x3x32x32"; "scalar" if there are no dimensions.
  std::string to_string() const;

  friend bool operator==(const Shape& a, const Shape& b) { return a.dims_ == b.dims_; }
  friend auto operator<=>(const Shape& a, const Shape& b) { return a.dims_ <=> b.dims_; }

 private:
  void count();
  Dims dims_;
  int64_t elements_ = 1;
};

// The shape of n observations of one shape: n before its dimensions; {n} for scalars. Throws
// InvalidArgument like Shape's constructors.
Shape batch_shape(int64_t n, const Shape& observation);

}  // namespace lockstep
