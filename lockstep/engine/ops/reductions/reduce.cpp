#include "lockstep/engine/ops/reductions/reduce.h"

#include <algorithm>
#include <numeric>

#include "lockstep/base/error.h"
#include "lockstep/engine/graph/differentiate.h"
#include "lockstep/engine/ops/applied.h"
#include "lockstep/engine/ops/ops.h"
#include "lockstep/engine/ops/shapes/views.h"

namespace lockstep::ops {
namespace {

using kernels::Reduction;

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

  // The product by a tree of products of two halves, whose derivatives of any order are exact where
  // elements are 0, too.
  Value tree_of_products(const Value& x) const {
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
    Value left = reshaped(permute_dims(x, order), Shape(dims));
    const auto part = [&](int64_t first, int64_t last) {
      std::vector<SliceRange> ranges(dims.size());
      ranges.back() = {first, last};
      return slice(left, ranges);
    };
    for (int64_t n = dims.back(); n > 1; n = (n + 1) / 2) {
      const Value first = part(0, n / 2);
      Value half = multiply(first, part(n / 2, n / 2 * 2));
      if (n % 2 == 1)
        half = concatenation({half, part(n - 1, n)}, static_cast<int>(dims.size()) - 1);
      left = half;
    }
    return reshaped(left, result(x.shape(), keep_));
  }

  Value gradient_of_product(const Value& x, const Value& d) const {
    if (x.shape().elements() == 0) return {};
    Graph graph;
    GraphBuilder builder(graph, std::string(type()));
    const Value from(&builder, graph.add_input(x.shape(), DType::f32));
    const Value diff(&builder, graph.add_input(d.shape(), DType::f32));
    const DerivativeSeed seed{tree_of_products(from).number(), diff.number()};
    const int wanted = from.number();
    const std::vector<int> diffs = add_gradients(graph, {&seed, 1}, {&wanted, 1});
    const Value outside[] = {x, d};
    return replayed(graph, outside, diffs)[0];
  }

  Reduction kind_;
  std::vector<int> axes_;
  bool keep_, mean_;
};

}  // namespace

OpPtr make_reduce(Reduction kind, std::vector<int> axes, bool keep, bool mean) {
  return std::make_shared<Reduce>(kind, std::move(axes), keep, mean);
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

}  // namespace lockstep::ops
