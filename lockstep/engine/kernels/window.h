// Parameters of ops that slide a window over rows and columns.
#pragma once

#include <cstdint>

#include "lockstep/base/fields.h"
#include "lockstep/base/shape.h"

namespace lockstep::kernels {

struct Window2d {
  Size2d kernel{1, 1};
  Size2d stride{1, 1};
  Size2d dilation{1, 1};  // 1: neighbouring elements
  // Resolved padding: zeros (max pooling: nothing) in front and behind, rows then columns.
  Size2d pad_begin{0, 0};
  Size2d pad_end{0, 0};
};

// Extent that the window covers on one axis: dilation * (kernel - 1) + 1.
constexpr int64_t window_extent(const Window2d& w, int axis) {
  const auto a = static_cast<size_t>(axis);
  return w.dilation[a] * (w.kernel[a] - 1) + 1;
}

// Positions of the window along one axis: (size + pad_begin + pad_end - extent) / stride + 1,
// rounded down; 0 or less where the window does not fit.
constexpr int64_t window_positions(const Window2d& w, int axis, int64_t size) {
  const auto a = static_cast<size_t>(axis);
  const int64_t room = size + w.pad_begin[a] + w.pad_end[a] - window_extent(w, axis);
  return room < 0 ? 0 : room / w.stride[a] + 1;
}

// Size along one axis of what a transposed convolution makes of `size` elements: stride * (size -
// 1)
// + extent - padding; 0 or less where the padding takes all.
constexpr int64_t transposed_size(const Window2d& w, int axis, int64_t size) {
  const auto a = static_cast<size_t>(axis);
  return w.stride[a] * (size - 1) + window_extent(w, axis) - w.pad_begin[a] - w.pad_end[a];
}

}  // namespace lockstep::kernels
