// Activations.
#include <cmath>
#include <numbers>

#include "lockstep/base/error.h"
#include "lockstep/engine/graph/kept_op.h"
#include "lockstep/engine/kernels/elementwise/activation.h"
#include "lockstep/engine/kernels/elementwise/clipped_relu.h"
#include "lockstep/engine/kernels/elementwise/relu.h"
#include "lockstep/engine/ops/applied.h"
#include "lockstep/engine/ops/elementwise.h"
#include "lockstep/engine/ops/op_makers.h"
#include "lockstep/engine/ops/pointwise.h"

namespace lockstep::ops {

namespace {

class Relu final : public Elementwise {
 public:
  std::string_view type() const override { return "relu"; }
  bool takes_narrow(size_t input) const override { return input == 0; }
  bool has_constant_slope() const override { return true; }
  std::vector<Value> tangent(std::span<const Value> inputs,
                             std::span<const Value> changes) const override {
    return elementwise_tangent(*this, inputs, changes);
  }

 private:
  kernels::Kernel kernel(const kernels::Table& table, const TensorSpec& src) const override {
    return kernels::compile(table, kernels::ReluProblem{src});
  }
};

}  // namespace

OpPtr make_relu() { return kept_op<Relu>(); }

template <Operand T>
T relu(const T& x) {
  return applied(make_relu(), {x});
}
LOCKSTEP_INSTANTIATE_1(relu)

namespace {

class ClippedRelu final : public Elementwise {
 public:
  explicit ClippedRelu(double ceiling) : ceiling_(ceiling) {
    if (!(ceiling > 0) || !std::isfinite(static_cast<float>(ceiling))) {
      throw InvalidArgument("[clipped_relu] the ceiling must be above 0 and finite, received " +
                            std::to_string(ceiling));
    }
  }
  std::string_view type() const override { return "clipped_relu"; }
  bool has_constant_slope() const override { return true; }
  std::vector<Value> tangent(std::span<const Value> inputs,
                             std::span<const Value> changes) const override {
    return elementwise_tangent(*this, inputs, changes);
  }

 private:
  kernels::Kernel kernel(const kernels::Table& table, const TensorSpec& src) const override {
    return kernels::compile(table, kernels::ClippedReluProblem{src, ceiling_});
  }

  double ceiling_;
};

}  // namespace

OpPtr make_clipped_relu(double ceiling) { return std::make_shared<ClippedRelu>(ceiling); }

template <Operand T>
T clipped_relu(const T& x, double ceiling) {
  return applied(make_clipped_relu(ceiling), {x});
}
LOCKSTEP_INSTANTIATE_1(clipped_relu, double)

namespace {

using kernels::ActivationKind;

class Activation final : public Elementwise {
 public:
  explicit Activation(ActivationKind kind, const char* parameter_name = "", double parameter = 0)
      : kind_(kind), parameter_(parameter) {
    if (!(parameter >= 0) || !std::isfinite(static_cast<float>(parameter))) {
      throw InvalidArgument("[" + std::string(type()) + "] " + parameter_name +
                            " must be at least 0 and finite, received " +
                            std::to_string(parameter));
    }
  }
  std::string_view type() const override {
    switch (kind_) {
      case ActivationKind::leaky_relu:
        return "leaky_relu";
      case ActivationKind::elu:
        return "elu";
      case ActivationKind::gelu:
        return "gelu";
      case ActivationKind::gelu_tanh:
        return "gelu";
      case ActivationKind::swish:
        return "swish";
      case ActivationKind::tanh:
        return "tanh";
      case ActivationKind::sigmoid:
        return "sigmoid";
      case ActivationKind::softplus:
        break;
    }
    return "softplus";
  }
  std::vector<Value> decomposed(std::span<const Value> in) const override {
    using kernels::Opcode;
    const auto pointwise = [](Opcode opcode, const Value& x) {
      return applied(make_pointwise(opcode), {x});
    };
    const Value& x = in[0];
    switch (kind_) {
      case ActivationKind::leaky_relu:
        return {where(less(0, x), x, x * parameter_)};
      case ActivationKind::elu:
        return {where(less(0, x), x, expm1(minimum(x, 0)) * parameter_)};
      case ActivationKind::gelu:
        return {x * (erfc(x * -std::numbers::sqrt2 / 2) * 0.5)};
      case ActivationKind::gelu_tanh: {
        const double root = 2 * std::numbers::sqrt2 * std::numbers::inv_sqrtpi;
        return {x * pointwise(Opcode::sigmoid, (x + x * square(x) * 0.044715) * root)};
      }
      case ActivationKind::swish:
        return {x * pointwise(Opcode::sigmoid, x)};
      case ActivationKind::tanh:
        return {pointwise(Opcode::tanh, x)};
      case ActivationKind::sigmoid:
        return {pointwise(Opcode::sigmoid, x)};
      case ActivationKind::softplus:
        break;
    }
    return {pointwise(Opcode::softplus, x)};
  }

 private:
  kernels::Kernel kernel(const kernels::Table& table, const TensorSpec& src) const override {
    return kernels::compile(table, kernels::ActivationProblem{src, kind_, parameter_});
  }

  ActivationKind kind_;
  double parameter_;
};

}  // namespace

OpPtr make_leaky_relu(double scale) {
  return std::make_shared<Activation>(ActivationKind::leaky_relu, "the scale", scale);
}
OpPtr make_elu(double alpha) {
  return std::make_shared<Activation>(ActivationKind::elu, "alpha", alpha);
}
OpPtr make_gelu(GeluApproximation approximation) {
  return std::make_shared<Activation>(
      approximation == GeluApproximation::tanh ? ActivationKind::gelu_tanh : ActivationKind::gelu);
}
OpPtr make_swish() { return kept_op<Activation>(ActivationKind::swish); }
OpPtr make_tanh() { return kept_op<Activation>(ActivationKind::tanh); }
OpPtr make_sigmoid() { return kept_op<Activation>(ActivationKind::sigmoid); }
OpPtr make_softplus() { return kept_op<Activation>(ActivationKind::softplus); }

template <Operand T>
T leaky_relu(const T& x, double scale) {
  return applied(make_leaky_relu(scale), {x});
}
LOCKSTEP_INSTANTIATE_1(leaky_relu, double)
template <Operand T>
T elu(const T& x, double alpha) {
  return applied(make_elu(alpha), {x});
}
LOCKSTEP_INSTANTIATE_1(elu, double)
template <Operand T>
T gelu(const T& x, GeluApproximation approximation) {
  return applied(make_gelu(approximation), {x});
}
LOCKSTEP_INSTANTIATE_1(gelu, GeluApproximation)
template <Operand T>
T swish(const T& x) {
  return applied(make_swish(), {x});
}
LOCKSTEP_INSTANTIATE_1(swish)
template <Operand T>
T tanh(const T& x) {
  return applied(make_tanh(), {x});
}
LOCKSTEP_INSTANTIATE_1(tanh)
template <Operand T>
T sigmoid(const T& x) {
  return applied(make_sigmoid(), {x});
}
LOCKSTEP_INSTANTIATE_1(sigmoid)
template <Operand T>
T softplus(const T& x) {
  return applied(make_softplus(), {x});
}
LOCKSTEP_INSTANTIATE_1(softplus)

}  // namespace lockstep::ops
