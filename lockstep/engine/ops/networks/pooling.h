// The op of all pooling.
#pragma once

#include <optional>

#include "lockstep/engine/graph/op.h"
#include "lockstep/engine/ops/networks/window.h"

namespace lockstep::ops {

// The number of axes is that of `pool`.
struct PoolingParams {
  Sizes pool, stride;
  WindowPadding padding;
  bool count_padding = true;
};
OpPtr make_max_pooling(const PoolingParams& params);
OpPtr make_average_pooling(const PoolingParams& params);
OpPtr make_global_average_pooling(int axes);

// Returns the window of a two-dimensional max pooling without padding whose stride equals its
// window. Returns nothing for other ops.
std::optional<Size2d> side_by_side_max_pooling(const Op& op);

}  // namespace lockstep::ops
