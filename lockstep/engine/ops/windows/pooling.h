// Pooling along one and three axes, and the general op behind all pooling.
#pragma once

#include <optional>

#include "lockstep/base/fields.h"
#include "lockstep/engine/autograd/tape.h"
#include "lockstep/engine/ops/windows/window.h"

namespace lockstep::ops {

struct Pooling1dParams {
  int64_t pool = 2, stride = 1;
  Padding1d padding{};
  bool count_padding = true;  // averages divide by the whole window including padding (zeros)
};

struct Pooling3dParams {
  Size3d pool{2, 2, 2}, stride{1, 1, 1};
  Padding3d padding{};
  bool count_padding = true;
};

// Like the two-dimensional functions, over n x c x l and n x c x d x h x w.
Tensor max_pooling1d(const Tensor& x, const Pooling1dParams& params = {});
Tensor max_pooling3d(const Tensor& x, const Pooling3dParams& params = {});
Tensor average_pooling1d(const Tensor& x, const Pooling1dParams& params = {});
Tensor average_pooling3d(const Tensor& x, const Pooling3dParams& params = {});
// Average over all of space. Results: n x c x 1 and n x c x 1 x 1 x 1.
Tensor global_average_pooling1d(const Tensor& x);
Tensor global_average_pooling3d(const Tensor& x);

OpPtr make_max_pooling1d(const Pooling1dParams& params);
OpPtr make_max_pooling3d(const Pooling3dParams& params);
OpPtr make_average_pooling1d(const Pooling1dParams& params);
OpPtr make_average_pooling3d(const Pooling3dParams& params);
OpPtr make_global_average_pooling1d();
OpPtr make_global_average_pooling3d();

// For any number of axes, which is that of `pool`.
struct PoolingParams {
  Sizes pool, stride;
  WindowPadding padding;
  bool count_padding = true;
};
OpPtr make_max_pooling(const PoolingParams& params);
OpPtr make_average_pooling(const PoolingParams& params);
OpPtr make_global_average_pooling(int axes);

}  // namespace lockstep::ops
