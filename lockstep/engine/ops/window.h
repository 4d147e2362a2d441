// Checks shared by ops that slide a window over space.
#pragma once

#include <string_view>

#include "lockstep/base/fields.h"
#include "lockstep/base/shape.h"
#include "lockstep/engine/kernels/window.h"

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

// Throws InvalidArgument, naming `op`, unless all have one number of axes, from 1 to 3.
void check_axes(std::string_view op, std::initializer_list<Sizes> sizes);

// The window with padding as numbers, for an input of `size` along its axes. "same" pads so that
// the output has ceil(size / stride) positions; an odd remainder goes behind (bottom, right).
// Throws InvalidArgument, naming `op`, where sizes are below 1 or above 2^30, padding is negative
// or above 2^20, or the window does not fit.
kernels::Window resolve_window(std::string_view op, const Sizes& kernel, const Sizes& stride,
                               const Sizes& dilation, const WindowPadding& padding,
                               const Sizes& size);

// The same for a transposed convolution, where padding is cropped from the result. "same" crops so
// that the result has size * stride elements; an odd remainder goes behind. The padding must leave
// something and be smaller than the window; "same" needs a window at least as large as the stride.
kernels::Window resolve_transposed_window(std::string_view op, const Sizes& kernel,
                                          const Sizes& stride, const Sizes& dilation,
                                          const WindowPadding& padding, const Sizes& size);

// Throws InvalidArgument unless `shape` is n x c x space, with this many axes of space (1 to 3) and
// no empty dimension.
void check_space(std::string_view op, const Shape& shape, int axes);
// Unless it is n x c x h x w.
void check_image(std::string_view op, const Shape& shape);

// The extents of space: what stands behind observations and channels.
Sizes space_of(const Shape& shape);
// n x c x positions of the window in space.
Shape slid_over(const Shape& x, int64_t channels, const kernels::Window& window);

}  // namespace lockstep::ops
