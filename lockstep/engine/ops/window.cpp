#include "lockstep/engine/ops/window.h"

#include <algorithm>
#include <string>

#include "lockstep/base/error.h"

namespace lockstep::ops {
namespace {

// Keep extents and sizes far from the end of 64 bits (and each number within oneDNN's 32).
constexpr int64_t kMostStep = int64_t{1} << 30;
constexpr int64_t kMostPadding = int64_t{1} << 20;

std::string pair(Size2d v) { return std::to_string(v[0]) + "x" + std::to_string(v[1]); }

void check_padding(const std::string& where, int64_t largest) {
  if (largest <= kMostPadding) return;
  throw InvalidArgument(where + "padding must be at most " + std::to_string(kMostPadding) +
                        " a side, received " + std::to_string(largest));
}

// The window as it was given; throws where numbers are outside their range.
kernels::Window2d checked_window(const std::string& where, Size2d kernel, Size2d stride,
                                 Size2d dilation, const Padding2d& padding) {
  for (const auto& [name, value] : {std::pair{"the window", kernel}, std::pair{"stride", stride},
                                    std::pair{"dilation", dilation}}) {
    if (value[0] < 1 || value[1] < 1) {
      throw InvalidArgument(where + name + " must be at least 1x1, received " + pair(value));
    }
    if (value[0] > kMostStep || value[1] > kMostStep) {
      throw InvalidArgument(where + name + " must be at most 2^30 a side, received " + pair(value));
    }
  }
  const auto all = {padding.top, padding.bottom, padding.left, padding.right};
  if (std::min(all) < 0) {
    throw InvalidArgument(where + "padding must not be negative, received " +
                          std::to_string(std::min(all)));
  }
  check_padding(where, std::max(all));
  return {kernel, stride, dilation, {padding.top, padding.left}, {padding.bottom, padding.right}};
}

}  // namespace

kernels::Window2d resolve_window(std::string_view op, Size2d kernel, Size2d stride, Size2d dilation,
                                 const Padding2d& padding, int64_t height, int64_t width) {
  const std::string where = "[" + std::string(op) + "] ";
  kernels::Window2d w = checked_window(where, kernel, stride, dilation, padding);
  const Size2d size{height, width};
  for (size_t a = 0; a < 2; ++a) {
    const int axis = static_cast<int>(a);
    if (padding.same) {
      const int64_t positions = (size[a] + stride[a] - 1) / stride[a];
      const int64_t total = std::max<int64_t>(
          0, (positions - 1) * stride[a] + kernels::window_extent(w, axis) - size[a]);
      w.pad_begin[a] = total / 2;
      w.pad_end[a] = total - total / 2;
      check_padding(where, w.pad_end[a]);
    }
    if (kernels::window_positions(w, axis, size[a]) < 1) {
      throw InvalidArgument(where + "a window of " + pair(kernel) + " with dilation " +
                            pair(dilation) + " does not fit into an input of " + pair(size));
    }
  }
  return w;
}

kernels::Window2d resolve_transposed_window(std::string_view op, Size2d kernel, Size2d stride,
                                            Size2d dilation, const Padding2d& padding,
                                            int64_t height, int64_t width) {
  const std::string where = "[" + std::string(op) + "] ";
  kernels::Window2d w = checked_window(where, kernel, stride, dilation, padding);
  const Size2d size{height, width};
  for (size_t a = 0; a < 2; ++a) {
    const int axis = static_cast<int>(a);
    const int64_t extent = kernels::window_extent(w, axis);
    if (padding.same) {
      if (extent < stride[a]) {
        throw InvalidArgument(where + "a window of " + pair(kernel) + " with dilation " +
                              pair(dilation) + " is smaller than the stride of " + pair(stride) +
                              ", so \"same\" padding cannot be");
      }
      w.pad_begin[a] = (extent - stride[a]) / 2;
      w.pad_end[a] = extent - stride[a] - w.pad_begin[a];
      check_padding(where, w.pad_end[a]);
    }
    if (w.pad_begin[a] >= extent || w.pad_end[a] >= extent ||
        kernels::transposed_size(w, axis, size[a]) < 1) {
      throw InvalidArgument(where + "padding of " + std::to_string(w.pad_begin[a]) + " and " +
                            std::to_string(w.pad_end[a]) + " leaves nothing of a window of " +
                            pair(kernel) + " over an input of " + pair(size));
    }
  }
  return w;
}

void check_image(std::string_view op, const Shape& shape) {
  if (shape.rank() == 4 && shape.elements() > 0) return;
  throw InvalidArgument("[" + std::string(op) + "] images of n x c x h x w wanted, received " +
                        shape.to_string());
}

}  // namespace lockstep::ops
