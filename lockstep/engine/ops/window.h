// Checks shared by ops that slide a window over an image.
#pragma once

#include <string_view>

#include "lockstep/base/fields.h"
#include "lockstep/base/shape.h"
#include "lockstep/engine/kernels/window.h"

namespace lockstep::ops {

// The window with padding as numbers, for an input of `height` x `width`. "same" pads so that the
// output has ceil(size / stride) positions; an odd remainder goes to the bottom and right. Throws
// InvalidArgument, naming `op`, where sizes are below 1 or above 2^30, padding is negative or above
// 2^20, or the window does not fit.
kernels::Window2d resolve_window(std::string_view op, Size2d kernel, Size2d stride, Size2d dilation,
                                 const Padding2d& padding, int64_t height, int64_t width);

// The same for a transposed convolution, where padding is cropped from the result. "same" crops so
// that the result has size * stride elements; an odd remainder goes to the bottom and right. The
// padding must leave something and be smaller than the window; "same" needs a window at least as
// large as the stride.
kernels::Window2d resolve_transposed_window(std::string_view op, Size2d kernel, Size2d stride,
                                            Size2d dilation, const Padding2d& padding,
                                            int64_t height, int64_t width);

// Throws InvalidArgument unless `shape` is n x c x h x w with no empty dimension.
void check_image(std::string_view op, const Shape& shape);

}  // namespace lockstep::ops
