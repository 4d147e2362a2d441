#include "lockstep/engine/ops/convolution2d.h"

#include "lockstep/engine/ops/convolution.h"

namespace lockstep::ops {

OpPtr make_convolution2d(const Convolution2dParams& p, bool bias) {
  return make_convolution({p.stride, p.padding, p.dilation, p.groups}, bias);
}

Tensor convolution2d(const Tensor& x, const Tensor& weights, const Tensor& bias,
                     const Convolution2dParams& params) {
  std::vector<Tensor> inputs{x, weights};
  if (bias.defined()) inputs.push_back(bias);
  return apply_op(make_convolution2d(params, bias.defined()), inputs)[0];
}

}  // namespace lockstep::ops
