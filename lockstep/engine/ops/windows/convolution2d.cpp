#include "lockstep/engine/ops/elementwise/with_bias.h"
#include "lockstep/engine/ops/ops.h"
#include "lockstep/engine/ops/windows/convolution.h"

namespace lockstep::ops {

OpPtr make_convolution2d(const Convolution2dParams& p, bool bias) {
  return make_convolution({p.stride, p.padding, p.dilation, p.groups}, bias);
}

Tensor convolution2d(const Tensor& x, const Tensor& weights, const Tensor& bias,
                     const Convolution2dParams& params) {
  return apply_op(make_convolution2d(params, bias.defined()), with_bias(x, weights, bias))[0];
}

}  // namespace lockstep::ops
