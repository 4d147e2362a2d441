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
LOCKSTEP_INSTANTIATE_1(max_pooling2d, const Pooling2dParams&)
template <Operand T>
T average_pooling2d(const T& x, const Pooling2dParams& params) {
  return applied(make_average_pooling2d(params), {x});
}
LOCKSTEP_INSTANTIATE_1(average_pooling2d, const Pooling2dParams&)
template <Operand T>
T global_average_pooling2d(const T& x) {
  return applied(make_global_average_pooling2d(), {x});
}
LOCKSTEP_INSTANTIATE_1(global_average_pooling2d)

}  // namespace lockstep::ops
