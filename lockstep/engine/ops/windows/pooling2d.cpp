#include "lockstep/engine/ops/applied.h"
#include "lockstep/engine/ops/op_makers.h"
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

template <Operand T>
T max_pooling2d(const T& x, const Pooling2dParams& params) {
  return applied(make_max_pooling2d(params), {x});
}
template Tensor max_pooling2d(const Tensor& x, const Pooling2dParams& params);
template Value max_pooling2d(const Value& x, const Pooling2dParams& params);
template <Operand T>
T average_pooling2d(const T& x, const Pooling2dParams& params) {
  return applied(make_average_pooling2d(params), {x});
}
template Tensor average_pooling2d(const Tensor& x, const Pooling2dParams& params);
template Value average_pooling2d(const Value& x, const Pooling2dParams& params);
template <Operand T>
T global_average_pooling2d(const T& x) {
  return applied(make_global_average_pooling2d(), {x});
}
template Tensor global_average_pooling2d(const Tensor& x);
template Value global_average_pooling2d(const Value& x);

}  // namespace lockstep::ops
