// Convolutions.
#include "lockstep/engine/ops/networks/convolution.h"

#include "lockstep/base/counted.h"
#include "lockstep/base/error.h"
#include "lockstep/engine/graph/op.h"
#include "lockstep/engine/kernels/windows/convolution.h"
#include "lockstep/engine/kernels/windows/transposed_convolution.h"
#include "lockstep/engine/ops/applied.h"
#include "lockstep/engine/ops/networks/window.h"
#include "lockstep/engine/ops/op_makers.h"
#include "lockstep/engine/ops/with_bias.h"

namespace lockstep::ops {

namespace {

class Convolution final : public FloatOp {
 public:
  Convolution(const ConvolutionParams& params, bool bias) : params_(params), bias_(bias) {}
  std::string_view type() const override {
    constexpr std::string_view names[] = {"convolution1d", "convolution2d", "convolution3d"};
    return names[axes() - 1];
  }
  bool takes_narrow(size_t input) const override { return input == 0; }

  std::vector<Shape> infer_shapes(std::span<const Shape> in) const override {
    check_count(*this, in.size(), bias_ ? 3 : 2, bias_ ? 3 : 2);
    check_space(type(), in[0], axes());
    const Shape &x = in[0], &w = in[1];
    const int64_t groups = params_.groups;
    const std::string where = "[" + std::string(type()) + "] ";
    const std::string received = " (input " + x.to_string() + ", weights " + w.to_string() + ")";
    if (w.rank() != 2 + axes() || w.elements() == 0) {
      constexpr const char* kernels[] = {"k", "kh x kw", "kd x kh x kw"};
      throw InvalidArgument(where + "expected weights of o x c x " + kernels[axes() - 1] +
                            received);
    }
    if (groups < 1 || x[1] % groups != 0 || w[0] % groups != 0) {
      throw InvalidArgument(where + std::to_string(groups) +
                            " groups do not divide the channels and filters" + received);
    }
    if (w[1] * groups != x[1]) {
      throw InvalidArgument(where + "weights have " + std::to_string(w[1] * groups) +
                            " input channels, but the input has " + std::to_string(x[1]) +
                            received);
    }
    if (bias_ && !(in[2] == Shape{w[0]})) {
      throw InvalidArgument(where + "expected a bias of " + counted(w[0], "element") +
                            ", received " + in[2].to_string());
    }
    return {slid_over(x, w[0], window_for(x, w))};
  }

  kernels::Kernel compile(const kernels::Table& table,
                          std::span<const TensorSpec> in) const override {
    const Shape &x = in[0].shape, &w = in[1].shape;
    const auto window = window_for(x, w);
    return kernels::compile(table, kernels::ConvolutionProblem{in[0], w, slid_over(x, w[0], window),
                                                               window, params_.groups, bias_});
  }
  std::vector<Value> tangent(std::span<const Value> inputs,
                             std::span<const Value> changes) const override {
    return product_tangent(std::make_shared<Convolution>(params_, false), inputs, changes);
  }

  std::optional<HandedOver> hand_over(const Op& next) const override {
    OpPtr biased = bias_ ? next.with_bias() : nullptr;
    if (!biased) return std::nullopt;
    return HandedOver{std::make_shared<Convolution>(params_, false), std::move(biased)};
  }

 private:
  int axes() const { return params_.stride.axes(); }
  kernels::Window window_for(const Shape& x, const Shape& w) const {
    return resolve_window(type(), space_of(w), params_.stride, params_.dilation, params_.padding,
                          space_of(x));
  }

  ConvolutionParams params_;
  bool bias_;
};

}  // namespace

OpPtr make_convolution(const ConvolutionParams& params, bool bias) {
  check_axes("convolution",
             {params.stride, params.dilation, params.padding.before, params.padding.after});
  return std::make_shared<Convolution>(params, bias);
}

OpPtr make_convolution1d(const Convolution1dParams& p, bool bias) {
  return make_convolution({{p.stride}, p.padding, {p.dilation}, p.groups}, bias);
}

OpPtr make_convolution3d(const Convolution3dParams& p, bool bias) {
  return make_convolution({p.stride, p.padding, p.dilation, p.groups}, bias);
}

template <Operand T>
T convolution1d(const T& x, const Same<T>& weights, const Same<T>& bias,
                const Convolution1dParams& params) {
  return applied(make_convolution1d(params, bias.defined()), with_bias(x, weights, bias));
}
LOCKSTEP_INSTANTIATE_3(convolution1d, const Convolution1dParams&)

template <Operand T>
T convolution3d(const T& x, const Same<T>& weights, const Same<T>& bias,
                const Convolution3dParams& params) {
  return applied(make_convolution3d(params, bias.defined()), with_bias(x, weights, bias));
}
LOCKSTEP_INSTANTIATE_3(convolution3d, const Convolution3dParams&)

OpPtr make_convolution2d(const Convolution2dParams& p, bool bias) {
  return make_convolution({p.stride, p.padding, p.dilation, p.groups}, bias);
}

template <Operand T>
T convolution2d(const T& x, const Same<T>& weights, const Same<T>& bias,
                const Convolution2dParams& params) {
  return applied(make_convolution2d(params, bias.defined()), with_bias(x, weights, bias));
}
LOCKSTEP_INSTANTIATE_3(convolution2d, const Convolution2dParams&)

namespace {

class TransposedConvolution2d final : public FloatOp {
 public:
  TransposedConvolution2d(const TransposedConvolution2dParams& params, bool bias)
      : params_(params), bias_(bias) {}
  std::string_view type() const override { return "transposed_convolution2d"; }
  bool takes_narrow(size_t input) const override { return input == 0; }

  std::vector<Shape> infer_shapes(std::span<const Shape> in) const override {
    check_count(*this, in.size(), bias_ ? 3 : 2, bias_ ? 3 : 2);
    check_image(type(), in[0]);
    const Shape &x = in[0], &w = in[1];
    const int64_t groups = params_.groups;
    const std::string received = " (input " + x.to_string() + ", weights " + w.to_string() + ")";
    if (w.rank() != 4 || w.elements() == 0) {
      throw InvalidArgument("[transposed_convolution2d] expected weights of c x o x kh x kw" +
                            received);
    }
    if (w[0] != x[1]) {
      throw InvalidArgument("[transposed_convolution2d] weights have " + std::to_string(w[0]) +
                            " input channels, but the input has " + std::to_string(x[1]) +
                            received);
    }
    if (groups < 1 || x[1] % groups != 0) {
      throw InvalidArgument("[transposed_convolution2d] " + std::to_string(groups) +
                            " groups do not divide the channels" + received);
    }
    const int64_t filters = w[1] * groups;
    if (bias_ && !(in[2] == Shape{filters})) {
      throw InvalidArgument("[transposed_convolution2d] expected a bias of " +
                            counted(filters, "element") + ", received " + in[2].to_string());
    }
    return {result(x, w, window_for(x, w))};
  }

  kernels::Kernel compile(const kernels::Table& table,
                          std::span<const TensorSpec> in) const override {
    const Shape &x = in[0].shape, &w = in[1].shape;
    const auto window = window_for(x, w);
    return kernels::compile(
        table, kernels::TransposedConvolutionProblem{in[0], w, result(x, w, window), window,
                                                     params_.groups, bias_});
  }
  std::vector<Value> tangent(std::span<const Value> inputs,
                             std::span<const Value> changes) const override {
    return product_tangent(std::make_shared<TransposedConvolution2d>(params_, false), inputs,
                           changes);
  }

 private:
  kernels::Window window_for(const Shape& x, const Shape& w) const {
    return resolve_transposed_window(type(), space_of(w), params_.stride, params_.dilation,
                                     params_.padding, space_of(x));
  }
  Shape result(const Shape& x, const Shape& w, const kernels::Window& window) const {
    return Shape{x[0], w[1] * params_.groups, kernels::transposed_size(window, 0, x[2]),
                 kernels::transposed_size(window, 1, x[3])};
  }

  TransposedConvolution2dParams params_;
  bool bias_;
};

}  // namespace

OpPtr make_transposed_convolution2d(const TransposedConvolution2dParams& params, bool bias) {
  return std::make_shared<TransposedConvolution2d>(params, bias);
}

template <Operand T>
T transposed_convolution2d(const T& x, const Same<T>& weights, const Same<T>& bias,
                           const TransposedConvolution2dParams& params) {
  return applied(make_transposed_convolution2d(params, bias.defined()),
                 with_bias(x, weights, bias));
}
LOCKSTEP_INSTANTIATE_3(transposed_convolution2d, const TransposedConvolution2dParams&)

}  // namespace lockstep::ops
