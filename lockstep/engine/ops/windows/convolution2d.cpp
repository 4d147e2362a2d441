#include "lockstep/engine/ops/applied.h"
#include "lockstep/engine/ops/elementwise/with_bias.h"
#include "lockstep/engine/ops/op_makers.h"
#include "lockstep/engine/ops/windows/convolution.h"

namespace lockstep::ops {

OpPtr make_convolution2d(const Convolution2dParams& p, bool bias) {
  return make_convolution({p.stride, p.padding, p.dilation, p.groups}, bias);
}

template <Operand T>
T convolution2d(const T& x, const Same<T>& weights, const Same<T>& bias,
                const Convolution2dParams& params) {
  return applied(make_convolution2d(params, bias.defined()), with_bias(x, weights, bias));
}
LOCKSTEP_INSTANTIATE_3(convolution2d, const Convolution2dParams&)

}  // namespace lockstep::ops
