// Positions of extremes, and cumulative sums, along one axis.
#include "lockstep/engine/kernels/reductions/arg_axis.h"
#include "lockstep/engine/kernels/reductions/cumulative_sum.h"
#include "lockstep/engine/ops/applied.h"
#include "lockstep/engine/ops/op_makers.h"
#include "lockstep/engine/ops/shapes/views.h"

namespace lockstep::ops {
namespace {

class ArgReduce final : public Op {
 public:
  ArgReduce(int axis, bool keep_dims, bool smallest)
      : axis_(axis), keep_dims_(keep_dims), smallest_(smallest) {}
  std::string_view type() const override { return smallest_ ? "argmin" : "argmax"; }

  std::vector<TensorSpec> infer(std::span<const TensorSpec> in) const override {
    check_count(*this, in.size(), 1, 1);
    kernels::arg_axis(problem(in[0]));
    return {{result(in[0].shape), DType::i64, nullptr}};
  }
  kernels::Kernel compile(const kernels::Table& table,
                          std::span<const TensorSpec> in) const override {
    kernels::Kernel kernel = kernels::compile(table, problem(in[0].plain()));
    kernel.forward.writes[0].spec.shape = result(in[0].shape);
    return kernel;
  }
  bool has_zero_slope() const override { return true; }

 private:
  kernels::ArgReduceProblem problem(const TensorSpec& x) const {
    return {x, resolved_axis(type(), axis_, x.shape), smallest_};
  }
  Shape result(const Shape& x) const {
    const int axis = resolved_axis(type(), axis_, x);
    if (!keep_dims_) return kernels::without_axis(x, axis);
    std::vector<int64_t> dims = x.dims();
    dims[static_cast<size_t>(axis)] = 1;
    return Shape(dims);
  }

  int axis_;
  bool keep_dims_, smallest_;
};

class CumulativeSum final : public FloatOp {
 public:
  CumulativeSum(int axis, bool reverse) : axis_(axis), reverse_(reverse) {}
  std::string_view type() const override { return "cumsum"; }

  kernels::Kernel compile(const kernels::Table& table,
                          std::span<const TensorSpec> in) const override {
    return kernels::compile(
        table, kernels::CumulativeSumProblem{in[0].plain(),
                                             resolved_axis(type(), axis_, in[0].shape), reverse_});
  }
  // The change of an element changes the sums of all later ones.
  std::vector<Value> gradient(const AppliedOp& of) const override {
    return {applied(make_cumsum(axis_, !reverse_), {of.diff_outputs[0]})};
  }

 private:
  std::vector<Shape> infer_shapes(std::span<const Shape> in) const override {
    check_count(*this, in.size(), 1, 1);
    resolved_axis(type(), axis_, in[0]);
    return {in[0]};
  }

  int axis_;
  bool reverse_;
};

}  // namespace

OpPtr make_arg_reduce(int axis, bool keep_dims, bool smallest) {
  return std::make_shared<ArgReduce>(axis, keep_dims, smallest);
}
OpPtr make_cumsum(int axis, bool reverse) { return std::make_shared<CumulativeSum>(axis, reverse); }

template <Operand T>
T argmax(const T& x, int axis, bool keep_dims) {
  return applied(make_arg_reduce(axis, keep_dims, false), {x});
}
template <Operand T>
T argmin(const T& x, int axis, bool keep_dims) {
  return applied(make_arg_reduce(axis, keep_dims, true), {x});
}
template <Operand T>
T cumsum(const T& x, int axis) {
  return applied(make_cumsum(axis, false), {x});
}

LOCKSTEP_INSTANTIATE_1(argmax, int, bool)
LOCKSTEP_INSTANTIATE_1(argmin, int, bool)
LOCKSTEP_INSTANTIATE_1(cumsum, int)

}  // namespace lockstep::ops
