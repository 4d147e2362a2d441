#include "lockstep/engine/ops/reductions/reduce.h"

#include <algorithm>
#include <numeric>

#include "lockstep/base/error.h"
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

  kernels::Kernel compile(const kernels::Table& table,
                          std::span<const TensorSpec> in) const override {
    const double factor = mean_ ? 1.0 / static_cast<double>(reduced(in[0].shape)) : 1.0;
    kernels::Kernel kernel = kernels::compile(
        table, kernels::ReduceProblem{in[0].plain(), resolved(in[0].shape), kind_, factor});
    kernel.forward.writes[0].spec.shape = result(in[0].shape, keep_);
    return kernel;
  }

  std::vector<Value> gradient(const AppliedOp& of) const override {
    const Value& x = of.inputs[0];
    const Shape kept = result(x.shape(), true);
    const Value d = reshaped(of.diff_outputs[0], kept);
    if (kind_ == Reduction::sum) {
      const Value each = mean_ ? d * (1.0 / static_cast<double>(reduced(x.shape()))) : d;
      return {broadcast_to(each, x.shape())};
    }
    const Value y = reshaped(of.outputs[0], kept);
    if (kind_ == Reduction::product) {
      throw Unsupported("[prod] has no gradient");
    }
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

  Reduction kind_;
  std::vector<int> axes_;
  bool keep_, mean_;
};

}  // namespace

OpPtr make_reduce(Reduction kind, std::vector<int> axes, bool keep, bool mean) {
  return std::make_shared<Reduce>(kind, std::move(axes), keep, mean);
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

#define LOCKSTEP_DEFINE_FOR(T)                                               \
  T sum(const T& x, const std::vector<int>& axes, bool keep_dims) {          \
    return applied(make_reduce(Reduction::sum, axes, keep_dims), {x});       \
  }                                                                          \
  T mean(const T& x, const std::vector<int>& axes, bool keep_dims) {         \
    return applied(make_reduce(Reduction::sum, axes, keep_dims, true), {x}); \
  }                                                                          \
  T max(const T& x, const std::vector<int>& axes, bool keep_dims) {          \
    return applied(make_reduce(Reduction::maximum, axes, keep_dims), {x});   \
  }                                                                          \
  T min(const T& x, const std::vector<int>& axes, bool keep_dims) {          \
    return applied(make_reduce(Reduction::minimum, axes, keep_dims), {x});   \
  }
LOCKSTEP_DEFINE_FOR(Tensor)
LOCKSTEP_DEFINE_FOR(Value)
#undef LOCKSTEP_DEFINE_FOR

}  // namespace lockstep::ops
