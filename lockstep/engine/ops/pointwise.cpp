#include "lockstep/engine/ops/pointwise.h"

#include <numbers>

#include "lockstep/base/error.h"
#include "lockstep/engine/graph/kept_op.h"
#include "lockstep/engine/ops/applied.h"
#include "lockstep/engine/ops/expression.h"
#include "lockstep/engine/ops/ops.h"
#include "lockstep/engine/ops/reduce.h"

namespace lockstep::ops {
namespace {

using kernels::Opcode;

class Pointwise final : public FloatOp {
 public:
  explicit Pointwise(Opcode opcode) : opcode_(opcode), instruction_{opcode, 0, 1, 2} {}
  std::string_view type() const override { return kernels::name_of(opcode_); }

  std::vector<Shape> infer_shapes(std::span<const Shape> in) const override {
    const auto arity = static_cast<size_t>(kernels::arity_of(opcode_));
    check_count(*this, in.size(), arity, arity);
    return {broadcast_shape(type(), in)};
  }
  kernels::Kernel compile(const kernels::Table& table,
                          std::span<const TensorSpec> in) const override {
    std::vector<Shape> shapes;
    for (const TensorSpec& spec : in) shapes.push_back(spec.shape);
    return compile_expression(table, in, broadcast_shape(type(), shapes), {instruction_});
  }
  const kernels::Instruction* instruction() const override { return &instruction_; }

  bool has_zero_slope() const override {
    using enum Opcode;
    return opcode_ == sign || opcode_ == floor || opcode_ == ceil || opcode_ == round ||
           opcode_ == equal || opcode_ == less || opcode_ == less_equal;
  }
  std::vector<Value> gradient(const AppliedOp& of) const override {
    std::vector<Value> diffs(of.inputs.size());
    for (size_t i = 0; i < diffs.size(); ++i) {
      if (!of.wanted[i]) continue;
      const Value diff = slope(of, i);
      if (diff.defined()) diffs[i] = sum_to(diff, of.inputs[i].shape());
    }
    return diffs;
  }

 private:
  // The derivative with respect to input i, in the shape of the output; undefined: 0.
  Value slope(const AppliedOp& of, size_t i) const {
    const Value &y = of.outputs[0], &d = of.diff_outputs[0], &x = of.inputs[0];
    const Value b = of.inputs.size() > 1 ? of.inputs[1] : Value();
    const bool first = i == 0;
    constexpr double inv_root_pi = std::numbers::inv_sqrtpi;
    switch (opcode_) {
      case Opcode::negate:
        return negate(d);
      case Opcode::abs:
        return d * sign(x);
      case Opcode::reciprocal:
        return negate(d * square(y));
      case Opcode::square:
        return d * (x * 2);
      case Opcode::sqrt:
        return d * 0.5 / y;
      case Opcode::rsqrt:
        return d * (y * square(y) * -0.5);
      case Opcode::exp:
        return d * y;
      case Opcode::expm1:
        return d * exp(x);
      case Opcode::log:
        return d / x;
      case Opcode::log1p:
        return d / (x + 1);
      case Opcode::log2:
        return d * std::numbers::log2e / x;
      case Opcode::sin:
        return d * cos(x);
      case Opcode::cos:
        return negate(d * sin(x));
      case Opcode::tan:
        return d * (square(y) + 1);
      case Opcode::tanh: {
        // 1 - y^2 without cancellation. Near 0 as it stands, because its own derivative, -2 y (1 -
        // y^2), would be a difference of nearly equal sigmoids there.
        const Value far = applied(make_pointwise(Opcode::sigmoid), {x * 2}) *
                          applied(make_pointwise(Opcode::sigmoid), {x * -2}) * 4;
        return d * where(less(square(y), 0.5), 1 - square(y), far);
      }
      case Opcode::erf:
        return d * (exp(negate(square(x))) * (2 * inv_root_pi));
      case Opcode::erfc:
        return d * (exp(negate(square(x))) * (-2 * inv_root_pi));
      case Opcode::sigmoid:
        // 1 - y without cancellation.
        return d * (y * applied(make_pointwise(Opcode::sigmoid), {negate(x)}));
      case Opcode::softplus:
        return d * applied(make_pointwise(Opcode::sigmoid), {x});
      case Opcode::add:
        return d;
      case Opcode::subtract:
        return first ? d : negate(d);
      case Opcode::multiply:
        return first ? d * b : d * x;
      case Opcode::divide:
        return first ? d / b : negate(d * y / b);
      case Opcode::pow:
        // b a^(b - 1), 0 for b = 0; and a^b log a, 0 where the power is 0.
        return first ? where(equal(b, 0), 0, d * (b * pow(x, b - 1)))
                     : where(equal(y, 0), 0, d * (y * log(x)));
      case Opcode::maximum:
        return d * ((first ? less(b, x) : less(x, b)) + equal(x, b) * 0.5);
      case Opcode::minimum:
        return d * ((first ? less(x, b) : less(b, x)) + equal(x, b) * 0.5);
      case Opcode::where:
        return first ? Value() : i == 1 ? where(x, d, 0) : where(x, 0, d);
      case Opcode::multiply_add:
        return first ? d * b : i == 1 ? d * x : d;
      default:  // has_zero_slope()
        break;
    }
    return {};
  }

  Opcode opcode_;
  kernels::Instruction instruction_;
};

class ScalarLike final : public FloatOp {
 public:
  explicit ScalarLike(float value) : instruction_{Opcode::constant, 0, 0, 0, value} {}
  std::string_view type() const override { return "scalar_like"; }
  std::vector<Shape> infer_shapes(std::span<const Shape> in) const override {
    check_count(*this, in.size(), 1, 1);
    return {Shape{}};
  }
  kernels::Kernel compile(const kernels::Table& table, std::span<const TensorSpec>) const override {
    return compile_expression(table, {}, Shape{}, {instruction_});
  }
  const kernels::Instruction* instruction() const override { return &instruction_; }
  bool has_zero_slope() const override { return true; }

 private:
  kernels::Instruction instruction_;
};

}  // namespace

OpPtr make_pointwise(Opcode opcode) { return kept_op<Pointwise>(opcode); }

OpPtr make_scalar_like(float value) { return std::make_shared<ScalarLike>(value); }

Shape broadcast_shape(std::string_view op, std::span<const Shape> shapes) {
  std::vector<int64_t> dims;
  for (const Shape& shape : shapes) {
    if (shape.rank() > static_cast<int>(dims.size())) {
      dims.insert(dims.begin(), static_cast<size_t>(shape.rank()) - dims.size(), 1);
    }
    const size_t missing = dims.size() - static_cast<size_t>(shape.rank());
    for (int a = 0; a < shape.rank(); ++a) {
      int64_t& dim = dims[missing + static_cast<size_t>(a)];
      if (dim == 1) dim = shape[a];
      if (shape[a] == dim || shape[a] == 1) continue;
      std::string received;
      for (const Shape& s : shapes) received += (received.empty() ? "" : " and ") + s.to_string();
      throw InvalidArgument(
          "[" + std::string(op) + "] shapes cannot be broadcast, received " + received,
          "aligned at the last axis, axes must be equal or 1");
    }
  }
  return Shape(dims);
}

#define LOCKSTEP_DEFINE(name, text)                                                   \
  Tensor name(const Tensor& x) { return applied(make_pointwise(Opcode::name), {x}); } \
  Value name(const Value& x) { return applied(make_pointwise(Opcode::name), {x}); }
LOCKSTEP_UNARY_OPS(LOCKSTEP_DEFINE)
#undef LOCKSTEP_DEFINE

namespace {

Value scalar_like(const Value& x, double value) {
  return applied(make_scalar_like(static_cast<float>(value)), {x});
}
Tensor scalar_like(const Tensor& x, double value) {
  if (x.device().is_cpu()) return Tensor::scalar(static_cast<float>(value));
  return applied(make_scalar_like(static_cast<float>(value)), {x});
}

}  // namespace

#define LOCKSTEP_DEFINE_FOR(name, T)                                                       \
  T name(const T& a, const T& b) { return applied(make_pointwise(Opcode::name), {a, b}); } \
  T name(const T& a, double b) {                                                           \
    return named(#name, [&] { return name(a, scalar_like(a, b)); });                       \
  }                                                                                        \
  T name(double a, const T& b) {                                                           \
    return named(#name, [&] { return name(scalar_like(b, a), b); });                       \
  }
#define LOCKSTEP_DEFINE(name, text) \
  LOCKSTEP_DEFINE_FOR(name, Tensor) \
  LOCKSTEP_DEFINE_FOR(name, Value)
LOCKSTEP_BINARY_OPS(LOCKSTEP_DEFINE)
#undef LOCKSTEP_DEFINE
#undef LOCKSTEP_DEFINE_FOR

#define LOCKSTEP_DEFINE_FOR(T)                                                     \
  T where(const T& condition, const T& a, const T& b) {                            \
    return applied(make_pointwise(Opcode::where), {condition, a, b});              \
  }                                                                                \
  T where(const T& condition, const T& a, double b) {                              \
    return named("where", [&] { return where(condition, a, scalar_like(a, b)); }); \
  }                                                                                \
  T where(const T& condition, double a, const T& b) {                              \
    return named("where", [&] { return where(condition, scalar_like(b, a), b); }); \
  }
LOCKSTEP_DEFINE_FOR(Tensor)
LOCKSTEP_DEFINE_FOR(Value)
#undef LOCKSTEP_DEFINE_FOR

}  // namespace lockstep::ops

namespace lockstep {

#define LOCKSTEP_DEFINE_FOR(T)                                        \
  T operator+(const T& a, const T& b) { return ops::add(a, b); }      \
  T operator*(const T& a, const T& b) { return ops::multiply(a, b); } \
  T operator-(const T& a, const T& b) { return ops::subtract(a, b); } \
  T operator/(const T& a, const T& b) { return ops::divide(a, b); }   \
  T operator+(const T& a, double b) { return ops::add(a, b); }        \
  T operator-(const T& a, double b) { return ops::subtract(a, b); }   \
  T operator*(const T& a, double b) { return ops::multiply(a, b); }   \
  T operator/(const T& a, double b) { return ops::divide(a, b); }     \
  T operator+(double a, const T& b) { return ops::add(a, b); }        \
  T operator-(double a, const T& b) { return ops::subtract(a, b); }   \
  T operator*(double a, const T& b) { return ops::multiply(a, b); }   \
  T operator/(double a, const T& b) { return ops::divide(a, b); }     \
  T operator-(const T& a) { return ops::negate(a); }
LOCKSTEP_DEFINE_FOR(Tensor)
LOCKSTEP_DEFINE_FOR(Value)
#undef LOCKSTEP_DEFINE_FOR

}  // namespace lockstep
