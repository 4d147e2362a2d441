// Parameters of ops that slide a window over space: along one axis, over rows and columns, or over
// depth, rows and columns.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/base/fields.h"
#include "lockstep/base/numeric/shape.h"

namespace lockstep::kernels {

inline constexpr int kMostAxes = 3;

// One number per spatial axis, outermost first.
class Sizes {
 public:
  // Throws InvalidArgument for more than kMostAxes.
  constexpr Sizes(std::initializer_list<int64_t> values) {
    for (int64_t v : values) add(v);
  }
  template <size_t axes>
  constexpr Sizes(const std::array<int64_t, axes>& values) {
    static_assert(axes <= kMostAxes);
    for (int64_t v : values) add(v);
  }
  static constexpr Sizes all(int axes, int64_t value) {
    Sizes sizes{};
    while (sizes.axes_ < axes) sizes.add(value);
    return sizes;
  }

  constexpr int axes() const { return axes_; }
  constexpr int64_t& operator[](size_t axis) { return values_[axis]; }
  constexpr int64_t operator[](size_t axis) const { return values_[axis]; }
  constexpr const int64_t* begin() const { return values_.data(); }
  constexpr const int64_t* end() const { return values_.data() + axes_; }
  // For example "3x3".
  std::string to_string() const {
    std::string text;
    for (int64_t v : *this) text += (text.empty() ? "" : "x") + std::to_string(v);
    return text;
  }
  friend constexpr bool operator==(const Sizes&, const Sizes&) = default;

 private:
  constexpr void add(int64_t value) {
    if (axes_ == kMostAxes) throw InvalidArgument("[window] space has at most three axes");
    values_[static_cast<size_t>(axes_++)] = value;
  }

  int axes_ = 0;
  std::array<int64_t, kMostAxes> values_{};  // 0 beyond the last axis
};

// All sizes have the same number of axes; two by default.
struct Window {
  Sizes kernel{1, 1};
  Sizes stride{1, 1};
  Sizes dilation{1, 1};  // 1: adjacent elements
  // Resolved padding before and after the elements: zeros, or nothing for max pooling.
  Sizes pad_begin{0, 0};
  Sizes pad_end{0, 0};

  constexpr int axes() const { return kernel.axes(); }
};

// Extent that the window covers along one axis: dilation * (kernel - 1) + 1.
constexpr int64_t window_extent(const Window& w, int axis) {
  const auto a = static_cast<size_t>(axis);
  return w.dilation[a] * (w.kernel[a] - 1) + 1;
}

// Positions of the window along one axis: (size + pad_begin + pad_end - extent) / stride + 1,
// rounded down; 0 if the window does not fit.
constexpr int64_t window_positions(const Window& w, int axis, int64_t size) {
  const auto a = static_cast<size_t>(axis);
  const int64_t room = size + w.pad_begin[a] + w.pad_end[a] - window_extent(w, axis);
  return room < 0 ? 0 : room / w.stride[a] + 1;
}

// Whether some element of the window lies in the padding at all `positions` along one axis of
// `size` elements. No result depends on the weights of that element.
constexpr bool meets_only_padding(const Window& w, int axis, int64_t size, int64_t positions) {
  const auto a = static_cast<size_t>(axis);
  for (int64_t element = 0; element < w.kernel[a]; ++element) {
    const int64_t at_first = element * w.dilation[a] - w.pad_begin[a];
    // The first position at which the element does not lie before the axis.
    const int64_t first = at_first < 0 ? (w.stride[a] - 1 - at_first) / w.stride[a] : 0;
    if (first >= positions || at_first + first * w.stride[a] >= size) return true;
  }
  return false;
}

// Output size of a transposed convolution of `size` elements along one axis: stride * (size - 1) +
// extent - padding; 0 or less if the padding removes everything.
constexpr int64_t transposed_size(const Window& w, int axis, int64_t size) {
  const auto a = static_cast<size_t>(axis);
  return w.stride[a] * (size - 1) + window_extent(w, axis) - w.pad_begin[a] - w.pad_end[a];
}

}  // namespace lockstep::kernels
