#include "lockstep/engine/ops/ops.h"
#include "lockstep/engine/ops/windows/pooling.h"

namespace lockstep::ops {
namespace {

PoolingParams general(const Pooling2dParams& p) {
  return {p.pool, p.stride, p.padding, p.count_padding};
}

}  // namespace

OpPtr make_max_pooling2d(const Pooling2dParams& p) { return make_max_pooling(general(p)); }
OpPtr make_average_pooling2d(const Pooling2dParams& p) { return make_average_pooling(general(p)); }
OpPtr make_global_average_pooling2d() { return make_global_average_pooling(2); }

Tensor max_pooling2d(const Tensor& x, const Pooling2dParams& params) {
  return apply_op(make_max_pooling2d(params), {x})[0];
}
Tensor average_pooling2d(const Tensor& x, const Pooling2dParams& params) {
  return apply_op(make_average_pooling2d(params), {x})[0];
}
Tensor global_average_pooling2d(const Tensor& x) {
  return apply_op(make_global_average_pooling2d(), {x})[0];
}

}  // namespace lockstep::ops
