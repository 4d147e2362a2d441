// Reductions.
#include <algorithm>
#include <numeric>

#include "lockstep/base/error.h"
#include "lockstep/engine/graph/differentiate.h"
#include "lockstep/engine/graph/kept_op.h"
#include "lockstep/engine/graph/op.h"
#include "lockstep/engine/kernels/reductions/arg_axis.h"
#include "lockstep/engine/kernels/reductions/cumulative_sum.h"
#include "lockstep/engine/kernels/reductions/products_of_others.h"
#include "lockstep/engine/kernels/reductions/sum.h"
#include "lockstep/engine/ops/applied.h"
#include "lockstep/engine/ops/op_makers.h"
#include "lockstep/engine/ops/ops.h"
#include "lockstep/engine/ops/reduce.h"
#include "lockstep/engine/ops/views.h"

namespace lockstep::ops {

namespace {

class Sum final : public FloatOp {
 public:
  explicit Sum(double factor) : factor_(factor) {}
  std::string_view type() const override { return "sum"; }
  std::vector<Shape> infer_shapes(std::span<const Shape> in) const override {
    check_count(*this, in.size(), 1, 1);
    return {Shape{}};
  }
  bool has_constant_slope() const override { return true; }
  std::vector<Value> tangent(std::span<const Value>,
                             std::span<const Value> changes) const override {
    return apply_all(shared_from_this(), changes);
  }
  kernels::Kernel compile(const kernels::Table& table,
                          std::span<const TensorSpec> in) const override {
    return kernels::compile(table, kernels::SumProblem{in[0], factor_});
  }

 private:
  double factor_;
};

}  // namespace

OpPtr make_sum(double factor) {
  static const OpPtr plain = kept(std::make_shared<Sum>(1));
  return factor == 1 ? plain : std::make_shared<Sum>(factor);
}

template <Operand T>
T sum(const T& x) {
  return applied(make_sum(), {x});
}
LOCKSTEP_INSTANTIATE_1(sum)

template <Operand T>
T mean(const T& x) {
  return named("mean", [&] {
    if (x.shape().elements() == 0) {
      throw InvalidArgument("[mean] no elements, input " + x.shape().to_string());
    }
    return applied(make_sum(1.0 / static_cast<double>(x.shape().elements())), {x});
  });
}
LOCKSTEP_INSTANTIATE_1(mean)

namespace {

using kernels::Reduction;

// The products of all other elements along the last axis.
class ProductsOfOthers final : public FloatOp {
 public:
  std::string_view type() const override { return "prod"; }
  std::vector<Shape> infer_shapes(std::span<const Shape> in) const override {
    check_count(*this, in.size(), 1, 1);
    return {in[0]};
  }
  kernels::Kernel compile(const kernels::Table& table,
                          std::span<const TensorSpec> in) const override {
    return kernels::compile(table, kernels::ProductsOfOthersProblem{in[0].plain()});
  }
  // That of what it computes by ops: the derivative of a tree of products.
  std::vector<Value> gradient(const AppliedOp& of) const override {
    Graph graph;
    GraphBuilder builder(graph, std::string(type()));
    const Shape shape = of.inputs[0].shape();
    const Value x(&builder, graph.add_input(shape, DType::f32));
    const Value diff(&builder, graph.add_input(shape, DType::f32));
    const Value product = tree_of_products(x);
    const int wanted = x.number();
    const DerivativeSeed one{product.number(), full_like(x, product.shape(), 1).number()};
    const std::vector<int> others = add_gradients(graph, {&one, 1}, {&wanted, 1});
    const DerivativeSeed seed{others[0], diff.number()};
    const std::vector<int> diffs = add_gradients(graph, {&seed, 1}, {&wanted, 1});
    const Value outside[] = {of.inputs[0], of.diff_outputs[0]};
    return replayed(graph, outside, diffs);
  }

 private:
  // By products of two halves, whose derivatives of any order are exact where elements are 0, too.
  static Value tree_of_products(const Value& x) {
    const auto last = static_cast<size_t>(x.shape().rank() - 1);
    Value left = x;
    const auto part = [&](int64_t first, int64_t stop) {
      std::vector<SliceRange> ranges(last + 1);
      ranges.back() = {first, stop};
      return slice(left, ranges);
    };
    for (int64_t n = x.shape()[-1]; n > 1; n = (n + 1) / 2) {
      Value half = multiply(part(0, n / 2), part(n / 2, n / 2 * 2));
      if (n % 2 == 1) half = concat({half, part(n - 1, n)}, static_cast<int>(last));
      left = half;
    }
    return left;
  }
};

class Reduce final : public FloatOp {
 public:
  Reduce(Reduction kind, std::vector<int> axes, bool keep, bool mean)
      : kind_(kind), axes_(std::move(axes)), keep_(keep), mean_(mean) {}
  std::string_view type() const override {
    switch (kind_) {
      case Reduction::product:
        return "prod";
      case Reduction::maximum:
        return "max";
      case Reduction::minimum:
        return "min";
      case Reduction::sum:
        break;
    }
    return mean_ ? "mean" : "sum";
  }

  std::vector<Shape> infer_shapes(std::span<const Shape> in) const override {
    check_count(*this, in.size(), 1, 1);
    const int64_t count = reduced(in[0]);
    if (count == 0 && (mean_ || kind_ == Reduction::maximum || kind_ == Reduction::minimum)) {
      throw InvalidArgument("[" + std::string(type()) + "] no elements to reduce, input " +
                            in[0].to_string());
    }
    return {result(in[0], keep_)};
  }

  kernels::ReduceProblem problem(const TensorSpec& src) const {
    const double factor = mean_ ? 1.0 / static_cast<double>(reduced(src.shape)) : 1.0;
    return {src.plain(), resolved(src.shape), kind_, factor};
  }
  kernels::Kernel compile(const kernels::Table& table,
                          std::span<const TensorSpec> in) const override {
    kernels::Kernel kernel = kernels::compile(table, problem(in[0]));
    kernel.forward.writes[0].spec.shape = result(in[0].shape, keep_);
    return kernel;
  }

  std::vector<Value> gradient(const AppliedOp& of) const override {
    const Value& x = of.inputs[0];
    if (kind_ == Reduction::product) return {gradient_of_product(x, of.diff_outputs[0])};
    const Shape kept = result(x.shape(), true);
    const Value& diff = of.diff_outputs[0];
    if (kind_ == Reduction::sum) {
      const Value each = mean_ ? diff * (1.0 / static_cast<double>(reduced(x.shape()))) : diff;
      return {broadcast_to(reshaped(each, kept), x.shape())};
    }
    const Value d = reshaped(diff, kept);
    const Value y = reshaped(of.outputs[0], kept);
    // Equal elements share the derivative.
    const Value at = equal(x, y);
    const Value share = d / applied(make_reduce(Reduction::sum, resolved(x.shape()), true), {at});
    return {at * share};
  }

 private:
  std::vector<int> resolved(const Shape& x) const { return resolved_axes(type(), axes_, x); }
  // The number of elements that give one.
  int64_t reduced(const Shape& x) const {
    int64_t count = 1;
    for (const int axis : resolved(x)) count *= x[axis];
    return count;
  }
  Shape result(const Shape& x, bool keep) const {
    const std::vector<int> axes = resolved(x);
    std::vector<int64_t> dims;
    for (int a = 0; a < x.rank(); ++a) {
      if (!std::binary_search(axes.begin(), axes.end(), a)) {
        dims.push_back(x[a]);
      } else if (keep) {
        dims.push_back(1);
      }
    }
    return Shape(dims);
  }

  // The derivative of a product. The reduced axes become the last one, and products are in double.
  Value gradient_of_product(const Value& x, const Value& d) const {
    if (x.shape().elements() == 0) return {};
    const std::vector<int> axes = resolved(x.shape());
    std::vector<int> order;
    std::vector<int64_t> dims;
    for (int a = 0; a < x.shape().rank(); ++a) {
      if (std::binary_search(axes.begin(), axes.end(), a)) continue;
      order.push_back(a);
      dims.push_back(x.shape()[a]);
    }
    order.insert(order.end(), axes.begin(), axes.end());
    dims.push_back(reduced(x.shape()));
    const Value turned = permute_dims(x, order);
    const Value rows = applied(make_products_of_others(), {reshaped(turned, Shape(dims))});
    std::vector<int> back(order.size());
    for (size_t a = 0; a < order.size(); ++a) {
      back[static_cast<size_t>(order[a])] = static_cast<int>(a);
    }
    return permute_dims(reshaped(rows, turned.shape()), back) *
           reshaped(d, result(x.shape(), true));
  }

  Reduction kind_;
  std::vector<int> axes_;
  bool keep_, mean_;
};

}  // namespace

OpPtr make_products_of_others() { return std::make_shared<ProductsOfOthers>(); }

OpPtr make_reduce(Reduction kind, std::vector<int> axes, bool keep, bool mean) {
  return kept_op<Reduce>(kind, axes, keep, mean);
}

std::optional<kernels::ReduceProblem> reduction_of(const Op& op, const TensorSpec& src) {
  const auto* const reduce = dynamic_cast<const Reduce*>(&op);
  if (!reduce) return std::nullopt;
  return reduce->problem(src);
}

Value sum_to(const Value& x, const Shape& shape) {
  const Shape from = x.shape();
  if (from == shape) return x;
  const int missing = from.rank() - shape.rank();
  std::vector<int> axes(static_cast<size_t>(missing));
  std::iota(axes.begin(), axes.end(), 0);
  for (int a = 0; a < shape.rank(); ++a) {
    if (shape[a] == 1 && from[missing + a] != 1) axes.push_back(missing + a);
  }
  const Value sum = applied(make_reduce(Reduction::sum, axes, false), {x});
  return sum.shape() == shape ? sum : reshaped(sum, shape);
}

template <Operand T>
T sum(const T& x, const std::vector<int>& axes, bool keep_dims) {
  return applied(make_reduce(Reduction::sum, axes, keep_dims), {x});
}
LOCKSTEP_INSTANTIATE_1(sum, const std::vector<int>&, bool)

template <Operand T>
T mean(const T& x, const std::vector<int>& axes, bool keep_dims) {
  return applied(make_reduce(Reduction::sum, axes, keep_dims, true), {x});
}
LOCKSTEP_INSTANTIATE_1(mean, const std::vector<int>&, bool)

template <Operand T>
T prod(const T& x, const std::vector<int>& axes, bool keep_dims) {
  return applied(make_reduce(Reduction::product, axes, keep_dims), {x});
}
LOCKSTEP_INSTANTIATE_1(prod, const std::vector<int>&, bool)

template <Operand T>
T max(const T& x, const std::vector<int>& axes, bool keep_dims) {
  return applied(make_reduce(Reduction::maximum, axes, keep_dims), {x});
}
LOCKSTEP_INSTANTIATE_1(max, const std::vector<int>&, bool)

template <Operand T>
T min(const T& x, const std::vector<int>& axes, bool keep_dims) {
  return applied(make_reduce(Reduction::minimum, axes, keep_dims), {x});
}
LOCKSTEP_INSTANTIATE_1(min, const std::vector<int>&, bool)

// Positions of extremes, and cumulative sums, along one axis.

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
