#include "lockstep/engine/ops/convolution2d.h"

#include "lockstep/base/error.h"
#include "lockstep/engine/ops/window.h"

namespace lockstep::ops {
namespace {

class Convolution2d final : public Op {
 public:
  Convolution2d(const Convolution2dParams& params, bool bias) : params_(params), bias_(bias) {}
  std::string_view type() const override { return "conv2d"; }
  bool takes_bf16(size_t input) const override { return input == 0; }

  std::vector<Shape> infer(std::span<const Shape> in) const override {
    check_count(*this, in, bias_ ? 3 : 2, bias_ ? 3 : 2);
    check_image(type(), in[0]);
    const Shape &x = in[0], &w = in[1];
    const int64_t groups = params_.groups;
    const std::string received = " (input " + x.to_string() + ", weights " + w.to_string() + ")";
    if (w.rank() != 4 || w.elements() == 0) {
      throw InvalidArgument("[conv2d] weights of o x c x kh x kw wanted" + received);
    }
    if (groups < 1 || x[1] % groups != 0 || w[0] % groups != 0) {
      throw InvalidArgument("[conv2d] " + std::to_string(groups) +
                            " groups do not divide the channels and filters" + received);
    }
    if (w[1] * groups != x[1]) {
      throw InvalidArgument("[conv2d] weights have " + std::to_string(w[1] * groups) +
                            " input channels, the input has " + std::to_string(x[1]) + received);
    }
    if (bias_ && !(in[2] == Shape{w[0]})) {
      throw InvalidArgument("[conv2d] a bias of " + std::to_string(w[0]) +
                            " elements wanted, received " + in[2].to_string());
    }
    const auto window = window_for(x, w);
    return {Shape{x[0], w[0], kernels::window_positions(window, 0, x[2]),
                  kernels::window_positions(window, 1, x[3])}};
  }

  kernels::Kernel compile(const kernels::Table& table,
                          std::span<const TensorSpec> in) const override {
    check_floats(*this, in);
    const Shape &x = in[0].shape, &w = in[1].shape;
    const auto window = window_for(x, w);
    const Shape dst{x[0], w[0], kernels::window_positions(window, 0, x[2]),
                    kernels::window_positions(window, 1, x[3])};
    return table.convolution({in[0], w, dst, window, params_.groups, bias_});
  }

 private:
  kernels::Window2d window_for(const Shape& x, const Shape& w) const {
    return resolve_window(type(), {w[2], w[3]}, params_.stride, params_.dilation, params_.padding,
                          x[2], x[3]);
  }

  Convolution2dParams params_;
  bool bias_;
};

}  // namespace

OpPtr make_convolution2d(const Convolution2dParams& params, bool bias) {
  return std::make_shared<Convolution2d>(params, bias);
}

Tensor convolution2d(const Tensor& x, const Tensor& weights, const Tensor& bias,
                     const Convolution2dParams& params) {
  std::vector<Tensor> inputs{x, weights};
  if (bias.defined()) inputs.push_back(bias);
  return apply_op(make_convolution2d(params, bias.defined()), inputs)[0];
}

}  // namespace lockstep::ops
