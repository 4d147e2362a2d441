#include "lockstep/engine/ops/networks/window.h"

#include <algorithm>
#include <string>

#include "lockstep/base/error.h"

namespace lockstep::ops {
namespace {

// These limits keep computed sizes far below 2^63, and each number within oneDNN's 32 bits.
constexpr int64_t kMostStep = int64_t{1} << 30;
constexpr int64_t kMostPadding = int64_t{1} << 20;

void check_padding(const std::string& where, int64_t largest) {
  if (largest <= kMostPadding) return;
  throw InvalidArgument(where + "padding must be at most " + std::to_string(kMostPadding) +
                        " a side, received " + std::to_string(largest));
}

// Returns the window as given. Throws InvalidArgument if a number is out of range.
kernels::Window checked_window(const std::string& where, const Sizes& kernel, const Sizes& stride,
                               const Sizes& dilation, const WindowPadding& padding) {
  for (const auto& [name, value] : {std::pair{"the window", kernel}, std::pair{"stride", stride},
                                    std::pair{"dilation", dilation}}) {
    if (*std::min_element(value.begin(), value.end()) < 1) {
      throw InvalidArgument(where + name + " must be at least " +
                            Sizes::all(value.axes(), 1).to_string() + ", received " +
                            value.to_string());
    }
    if (*std::max_element(value.begin(), value.end()) > kMostStep) {
      throw InvalidArgument(where + name + " must be at most 2^30 a side, received " +
                            value.to_string());
    }
  }
  for (const Sizes& sides : {padding.before, padding.after}) {
    const auto [least, most] = std::minmax_element(sides.begin(), sides.end());
    if (*least < 0) {
      throw InvalidArgument(where + "padding must not be negative, received " +
                            std::to_string(*least));
    }
    check_padding(where, *most);
  }
  return {kernel, stride, dilation, padding.before, padding.after};
}

}  // namespace

void check_axes(std::string_view op, std::initializer_list<Sizes> sizes) {
  for (const Sizes& s : sizes) {
    if (s.axes() >= 1 && s.axes() == sizes.begin()->axes()) continue;
    throw InvalidArgument(
        "[" + std::string(op) + "] strides, windows and padding need the same number " +
        "of axes, from 1 to 3; received " + std::to_string(sizes.begin()->axes()) + " and " +
        std::to_string(s.axes()));
  }
}

kernels::Window resolve_window(std::string_view op, const Sizes& kernel, const Sizes& stride,
                               const Sizes& dilation, const WindowPadding& padding,
                               const Sizes& size) {
  const std::string where = "[" + std::string(op) + "] ";
  kernels::Window w = checked_window(where, kernel, stride, dilation, padding);
  for (int axis = 0; axis < w.axes(); ++axis) {
    const auto a = static_cast<size_t>(axis);
    if (padding.same) {
      const int64_t positions = (size[a] + stride[a] - 1) / stride[a];
      const int64_t total = std::max<int64_t>(
          0, (positions - 1) * stride[a] + kernels::window_extent(w, axis) - size[a]);
      w.pad_begin[a] = total / 2;
      w.pad_end[a] = total - total / 2;
      check_padding(where, w.pad_end[a]);
    }
    if (kernels::window_positions(w, axis, size[a]) < 1) {
      throw InvalidArgument(where + "a window of " + kernel.to_string() + " with dilation " +
                            dilation.to_string() + " does not fit into an input of " +
                            size.to_string());
    }
  }
  return w;
}

kernels::Window resolve_transposed_window(std::string_view op, const Sizes& kernel,
                                          const Sizes& stride, const Sizes& dilation,
                                          const WindowPadding& padding, const Sizes& size) {
  const std::string where = "[" + std::string(op) + "] ";
  kernels::Window w = checked_window(where, kernel, stride, dilation, padding);
  for (int axis = 0; axis < w.axes(); ++axis) {
    const auto a = static_cast<size_t>(axis);
    const int64_t extent = kernels::window_extent(w, axis);
    if (padding.same) {
      if (extent < stride[a]) {
        throw InvalidArgument(where + "a window of " + kernel.to_string() + " with dilation " +
                              dilation.to_string() + " is smaller than the stride of " +
                              stride.to_string() + ", so \"same\" padding is not possible");
      }
      w.pad_begin[a] = (extent - stride[a]) / 2;
      w.pad_end[a] = extent - stride[a] - w.pad_begin[a];
      check_padding(where, w.pad_end[a]);
    }
    const std::string given = where + "padding of " + std::to_string(w.pad_begin[a]) + " and " +
                              std::to_string(w.pad_end[a]);
    if (w.pad_begin[a] >= extent || w.pad_end[a] >= extent) {
      throw InvalidArgument(given + " must be smaller than the window of " + kernel.to_string() +
                                ", which covers " + std::to_string(extent) + " with dilation " +
                                dilation.to_string(),
                            "it removes rows and columns from the result: the window must reach "
                            "beyond what is removed");
    }
    if (kernels::transposed_size(w, axis, size[a]) < 1) {
      throw InvalidArgument(given + " removes the whole result of a window of " +
                            kernel.to_string() + " over an input of " + size.to_string());
    }
  }
  return w;
}

void check_space(std::string_view op, const Shape& shape, int axes) {
  if (shape.rank() == 2 + axes && shape.elements() > 0) return;
  const char* wanted = axes == 1   ? "sequences of n x c x l"
                       : axes == 2 ? "images of n x c x h x w"
                                   : "images of n x c x d x h x w";
  throw InvalidArgument("[" + std::string(op) + "] expected " + wanted + ", received " +
                        shape.to_string());
}

void check_image(std::string_view op, const Shape& shape) { check_space(op, shape, 2); }

Sizes space_of(const Shape& shape) {
  Sizes space = Sizes::all(shape.rank() - 2, 0);
  for (int axis = 0; axis < space.axes(); ++axis) {
    space[static_cast<size_t>(axis)] = shape[2 + axis];
  }
  return space;
}

Shape slid_over(const Shape& x, int64_t channels, const kernels::Window& window) {
  std::vector<int64_t> dims{x[0], channels};
  for (int axis = 0; axis < window.axes(); ++axis) {
    dims.push_back(kernels::window_positions(window, axis, x[2 + axis]));
  }
  return Shape(std::move(dims));
}

}  // namespace lockstep::ops
