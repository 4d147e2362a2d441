// Checks for ops that slide a window over space.
#pragma once

#include <string_view>

#include "lockstep/base/fields.h"
#include "lockstep/base/numeric/shape.h"
#include "lockstep/engine/kernels/windows/window.h"

namespace lockstep::ops {

using kernels::Sizes;

// Padding along any number of axes.
struct WindowPadding {
  bool same = false;
  Sizes before, after;

  WindowPadding(const Padding2d& p)
      : same(p.same), before{p.top, p.left}, after{p.bottom, p.right} {}
  template <size_t axes>
  WindowPadding(const PaddingAlong<axes>& p) : same(p.same), before(p.before), after(p.after) {}
  friend bool operator==(const WindowPadding&, const WindowPadding&) = default;
};

// Throws InvalidArgument, naming `op`, unless all sizes have the same number of axes, from 1 to 3.
void check_axes(std::string_view op, std::initializer_list<Sizes> sizes);

// Returns the window with padding as numbers, for an input of `size` along its axes. "same" pads so
// that the output has ceil(size / stride) positions. If the total padding is odd, the extra element
// is at the end (bottom, right). Throws InvalidArgument, naming `op`, if a size is below 1 or above
// 2^30, if padding is negative or above 2^20, or if the window does not fit.
kernels::Window resolve_window(std::string_view op, const Sizes& kernel, const Sizes& stride,
                               const Sizes& dilation, const WindowPadding& padding,
                               const Sizes& size);

// The same for a transposed convolution, whose padding is cropped from the result. "same" crops so
// that the result has size * stride elements. If the total is odd, the extra element is at the end.
// Also throws InvalidArgument if the padding leaves no elements or is not smaller than the window,
// or if the window is smaller than the stride with "same".
kernels::Window resolve_transposed_window(std::string_view op, const Sizes& kernel,
                                          const Sizes& stride, const Sizes& dilation,
                                          const WindowPadding& padding, const Sizes& size);

// Throws InvalidArgument unless `shape` is n x c x space, with `axes` axes of space (1 to 3) and no
// empty dimension.
void check_space(std::string_view op, const Shape& shape, int axes);
// Throws InvalidArgument unless `shape` is n x c x h x w without an empty dimension.
void check_image(std::string_view op, const Shape& shape);

// Returns the extents of space: the dimensions after observations and channels.
Sizes space_of(const Shape& shape);
// Returns the output shape: n x channels x positions of the window in space.
Shape slid_over(const Shape& x, int64_t channels, const kernels::Window& window);

}  // namespace lockstep::ops
