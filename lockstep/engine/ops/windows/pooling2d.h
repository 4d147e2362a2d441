// Two-dimensional pooling.
#pragma once

#include "lockstep/base/fields.h"
#include "lockstep/engine/autograd/tape.h"

namespace lockstep::ops {

struct Pooling2dParams {
  Size2d pool{2, 2};
  Size2d stride{1, 1};
  Padding2d padding{};
  bool count_padding = true;  // averages divide by the whole window including padding (zeros)
};

// Maximum (average) over windows of x: n x c x h x w. Result: n x c x oh x ow, oh = (h + padding -
// pool) / stride + 1, rounded down. The gradient of a maximum goes to the first of equal elements.
// Throws InvalidArgument if the window does not fit or the padding is not smaller than the window.
// Thread-safe.
Tensor max_pooling2d(const Tensor& x, const Pooling2dParams& params = {});
Tensor average_pooling2d(const Tensor& x, const Pooling2dParams& params = {});
// Average over all rows and columns. Result: n x c x 1 x 1.
Tensor global_average_pooling2d(const Tensor& x);

// Returns the window of a two-dimensional max pooling without padding whose stride equals its
// window. Returns nothing for other ops.
std::optional<Size2d> side_by_side_max_pooling(const Op& op);

OpPtr make_max_pooling2d(const Pooling2dParams& params);
OpPtr make_average_pooling2d(const Pooling2dParams& params);
OpPtr make_global_average_pooling2d();

}  // namespace lockstep::ops
