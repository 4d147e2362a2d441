// Sums and products of equal shapes, conversions of types, comparisons.
#include "lockstep/engine/ops/elementwise.h"

#include <limits>

#include "lockstep/base/error.h"
#include "lockstep/engine/graph/kept_op.h"
#include "lockstep/engine/kernels/elementwise/addition.h"
#include "lockstep/engine/kernels/elementwise/cast.h"
#include "lockstep/engine/kernels/elementwise/multiplication.h"
#include "lockstep/engine/kernels/interface/element_types.h"
#include "lockstep/engine/ops/applied.h"
#include "lockstep/engine/ops/op_makers.h"
#include "lockstep/engine/ops/ops.h"

namespace lockstep::ops {

namespace {

class Addition final : public ElementwiseOfMany {
 public:
  std::string_view type() const override { return "add"; }
  bool takes_narrow(size_t) const override { return true; }
  bool has_constant_slope() const override { return true; }
  std::vector<Value> tangent(std::span<const Value>,
                             std::span<const Value> changes) const override {
    std::vector<Value> terms;
    for (const Value& change : changes) {
      if (change.defined()) terms.push_back(change);
    }
    return apply_all(shared_from_this(), terms);
  }

 private:
  kernels::Kernel kernel(const kernels::Table& table, std::vector<TensorSpec> src) const override {
    return kernels::compile(table, kernels::AdditionProblem{std::move(src)});
  }
};

}  // namespace

OpPtr make_add() { return std::make_shared<Addition>(); }

Tensor add(const std::vector<Tensor>& terms) { return applied(make_add(), terms); }
Value add(const std::vector<Value>& terms) { return applied(make_add(), terms); }

namespace {

class Multiplication final : public ElementwiseOfMany {
 public:
  std::string_view type() const override { return "multiply"; }
  // The sum over factors of the product with that factor's change in its place.
  std::vector<Value> tangent(std::span<const Value> inputs,
                             std::span<const Value> changes) const override {
    std::vector<Value> terms;
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (!changes[i].defined()) continue;
      std::vector<Value> factors(inputs.begin(), inputs.end());
      factors[i] = changes[i];
      terms.push_back(applied(shared_from_this(), factors));
    }
    return apply_all(make_add(), terms);
  }

 private:
  kernels::Kernel kernel(const kernels::Table& table, std::vector<TensorSpec> src) const override {
    return kernels::compile(table, kernels::MultiplicationProblem{std::move(src)});
  }
};

}  // namespace

OpPtr make_multiply() { return std::make_shared<Multiplication>(); }

Tensor multiply(const std::vector<Tensor>& factors) { return applied(make_multiply(), factors); }
Value multiply(const std::vector<Value>& factors) { return applied(make_multiply(), factors); }

namespace {

class Cast final : public Op {
 public:
  explicit Cast(DType to) : to_(to) {}
  std::string_view type() const override { return "astype"; }

  std::vector<TensorSpec> infer(std::span<const TensorSpec> in) const override {
    check_count(*this, in.size(), 1, 1);
    for (const DType type : {in[0].dtype, to_}) kernels::with_type(this->type(), type, [](auto) {});
    return {{in[0].shape, to_, nullptr}};
  }
  kernels::Kernel compile(const kernels::Table& table,
                          std::span<const TensorSpec> in) const override {
    return kernels::compile(table, kernels::CastProblem{in[0].plain(), to_});
  }
  bool has_zero_slope() const override { return to_ != DType::f32; }
  // Whole numbers have no derivative.
  std::vector<Value> gradient(const AppliedOp& of) const override {
    const bool floats = to_ == DType::f32 && of.inputs[0].dtype() == DType::f32;
    return {floats ? of.diff_outputs[0] : Value()};
  }

 private:
  DType to_;
};

}  // namespace

OpPtr make_astype(DType to) { return kept_op<Cast>(to); }

template <Operand T>
T astype(const T& x, DType to) {
  return applied(make_astype(to), {x});
}

LOCKSTEP_INSTANTIATE_1(astype, DType)

// Comparisons, logic and limits, made of the functions of op_list.h.

template <Operand T>
T clip(const T& x, double low, double high) {
  if (!(low <= high)) {
    throw InvalidArgument("[clip] expected limits in order, received " + std::to_string(low) +
                          " and " + std::to_string(high));
  }
  return named("clip", [&] {
    const T above = where(less(x, low), low, x);
    return where(less(high, above), high, above);
  });
}
LOCKSTEP_INSTANTIATE_1(clip, double, double)

template <Operand T>
T isnan(const T& x) {
  return named("isnan", [&] { return not_equal(x, x); });
}
LOCKSTEP_INSTANTIATE_1(isnan)

template <Operand T>
T isfinite(const T& x) {
  return named("isfinite", [&] { return less(abs(x), std::numeric_limits<double>::infinity()); });
}
LOCKSTEP_INSTANTIATE_1(isfinite)

template <Operand T>
T logical_not(const T& x) {
  return named("logical_not", [&] { return equal(x, 0); });
}
LOCKSTEP_INSTANTIATE_1(logical_not)

#define LOCKSTEP_DEFINE(T, name, B, formula)      \
  T name(const T& a, B b) {                       \
    return named(#name, [&] { return formula; }); \
  }
#define LOCKSTEP_DEFINE_FOR(T)                                                 \
  LOCKSTEP_DEFINE(T, greater, const T&, less(b, a))                            \
  LOCKSTEP_DEFINE(T, greater, double, less(b, a))                              \
  LOCKSTEP_DEFINE(T, greater_equal, const T&, less_equal(b, a))                \
  LOCKSTEP_DEFINE(T, greater_equal, double, less_equal(b, a))                  \
  LOCKSTEP_DEFINE(T, not_equal, const T&, 1 - equal(a, b))                     \
  LOCKSTEP_DEFINE(T, not_equal, double, 1 - equal(a, b))                       \
  LOCKSTEP_DEFINE(T, logical_and, const T&, not_equal(a, 0) * not_equal(b, 0)) \
  LOCKSTEP_DEFINE(T, logical_or, const T&, 1 - equal(a, 0) * equal(b, 0))      \
  LOCKSTEP_DEFINE(T, logical_xor, const T&, not_equal(equal(a, 0), equal(b, 0)))
LOCKSTEP_DEFINE_FOR(Tensor)
LOCKSTEP_DEFINE_FOR(Value)
#undef LOCKSTEP_DEFINE_FOR
#undef LOCKSTEP_DEFINE

}  // namespace lockstep::ops
