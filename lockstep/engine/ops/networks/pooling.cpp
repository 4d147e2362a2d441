// Pooling.
#include "lockstep/engine/ops/networks/pooling.h"

#include <algorithm>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/engine/kernels/windows/pooled_at_maximum.h"
#include "lockstep/engine/kernels/windows/pooling.h"
#include "lockstep/engine/ops/applied.h"
#include "lockstep/engine/ops/op_makers.h"

namespace lockstep::ops {

namespace {

// The values at the positions of the largest elements of x in the windows of a max pooling, the
// first of equal ones. Inputs: x and the values.
class PooledAtMaximum final : public FloatOp {
 public:
  PooledAtMaximum(OpPtr pooling, const kernels::PooledAtMaximumProblem& problem)
      : pooling_(std::move(pooling)), problem_(problem) {}
  std::string_view type() const override { return pooling_->type(); }
  std::vector<Shape> infer_shapes(std::span<const Shape> in) const override {
    check_count(*this, in.size(), 2, 2);
    return {problem_.dst};
  }
  kernels::Kernel compile(const kernels::Table& table, std::span<const TensorSpec>) const override {
    return kernels::compile(table, problem_);
  }
  std::vector<Value> gradient(const AppliedOp& of) const override {
    if (!of.wanted[1]) return {};
    const Value& x = of.inputs[0];
    const AppliedOp gradient_of{{x}, apply_all(pooling_, {x}), of.diff_outputs, {true}};
    return {Value(), pooling_->gradient(gradient_of)[0]};
  }

 private:
  OpPtr pooling_;
  kernels::PooledAtMaximumProblem problem_;
};

class Pooling final : public FloatOp {
 public:
  enum class Kind { max, average, global_average };
  Pooling(Kind kind, const PoolingParams& params)
      : kind_(kind),
        params_(params),
        type_((kind == Kind::max       ? "max_pooling"
               : kind == Kind::average ? "average_pooling"
                                       : "global_average_pooling") +
              std::to_string(axes()) + "d") {}

  std::string_view type() const override { return type_; }
  bool takes_narrow(size_t input) const override { return input == 0; }

  std::vector<Shape> infer_shapes(std::span<const Shape> in) const override {
    check_count(*this, in.size(), 1, 1);
    check_space(type(), in[0], axes());
    return {slid_over(in[0], in[0][1], window_for(in[0]))};
  }

  kernels::Kernel compile(const kernels::Table& table,
                          std::span<const TensorSpec> in) const override {
    using Problem = kernels::PoolingProblem;
    const Shape& x = in[0].shape;
    const auto window = window_for(x);
    const auto kind = kind_ == Kind::max      ? Problem::Kind::max
                      : params_.count_padding ? Problem::Kind::average_with_padding
                                              : Problem::Kind::average_without_padding;
    return kernels::compile(
        table, kernels::PoolingProblem{in[0], slid_over(x, x[1], window), window, kind});
  }

  bool has_constant_slope() const override { return true; }
  std::vector<Value> tangent(std::span<const Value> inputs,
                             std::span<const Value> changes) const override {
    if (kind_ != Kind::max) return apply_all(shared_from_this(), changes);
    const Shape x = inputs[0].shape();
    const auto window = window_for(x);
    const kernels::PooledAtMaximumProblem problem{
        {x, DType::f32, nullptr}, slid_over(x, x[1], window), window};
    const Value both[] = {inputs[0], changes[0]};
    return apply_all(std::make_shared<PooledAtMaximum>(shared_from_this(), problem), both);
  }

  std::optional<Size2d> side_by_side_maximum() const {
    if (axes() != 2 || kind_ != Kind::max || params_.stride != params_.pool) return std::nullopt;
    if (params_.padding != WindowPadding(Padding2d{})) return std::nullopt;
    return Size2d{params_.pool[0], params_.pool[1]};
  }

 private:
  int axes() const { return params_.pool.axes(); }

  kernels::Window window_for(const Shape& x) const {
    const Sizes none = Sizes::all(axes(), 0), ones = Sizes::all(axes(), 1);
    if (kind_ == Kind::global_average) return {space_of(x), ones, ones, none, none};
    const auto w =
        resolve_window(type(), params_.pool, params_.stride, ones, params_.padding, space_of(x));
    for (size_t a = 0; a < static_cast<size_t>(axes()); ++a) {
      if (w.pad_begin[a] >= w.kernel[a] || w.pad_end[a] >= w.kernel[a]) {
        throw InvalidArgument("[" + type_ + "] padding must be smaller than the window of " +
                              w.kernel.to_string() + ", received " +
                              std::to_string(std::max(w.pad_begin[a], w.pad_end[a])));
      }
    }
    return w;
  }

  Kind kind_;
  PoolingParams params_;
  std::string type_;
};

PoolingParams general(const Pooling1dParams& p) {
  return {{p.pool}, {p.stride}, p.padding, p.count_padding};
}
PoolingParams general(const Pooling3dParams& p) {
  return {p.pool, p.stride, p.padding, p.count_padding};
}

}  // namespace

std::optional<Size2d> side_by_side_max_pooling(const Op& op) {
  const auto* pooling = dynamic_cast<const Pooling*>(&op);
  return pooling ? pooling->side_by_side_maximum() : std::nullopt;
}

OpPtr make_max_pooling(const PoolingParams& params) {
  check_axes("max_pooling",
             {params.pool, params.stride, params.padding.before, params.padding.after});
  return std::make_shared<Pooling>(Pooling::Kind::max, params);
}
OpPtr make_average_pooling(const PoolingParams& params) {
  check_axes("average_pooling",
             {params.pool, params.stride, params.padding.before, params.padding.after});
  return std::make_shared<Pooling>(Pooling::Kind::average, params);
}
OpPtr make_global_average_pooling(int axes) {
  const Sizes ones = Sizes::all(axes, 1);
  check_axes("global_average_pooling", {ones});
  PoolingParams params{ones, ones, Padding2d{}};
  return std::make_shared<Pooling>(Pooling::Kind::global_average, params);
}

OpPtr make_max_pooling1d(const Pooling1dParams& p) { return make_max_pooling(general(p)); }
OpPtr make_max_pooling3d(const Pooling3dParams& p) { return make_max_pooling(general(p)); }
OpPtr make_average_pooling1d(const Pooling1dParams& p) { return make_average_pooling(general(p)); }
OpPtr make_average_pooling3d(const Pooling3dParams& p) { return make_average_pooling(general(p)); }
OpPtr make_global_average_pooling1d() { return make_global_average_pooling(1); }
OpPtr make_global_average_pooling3d() { return make_global_average_pooling(3); }

template <Operand T>
T max_pooling1d(const T& x, const Pooling1dParams& params) {
  return applied(make_max_pooling1d(params), {x});
}
LOCKSTEP_INSTANTIATE_1(max_pooling1d, const Pooling1dParams&)
template <Operand T>
T max_pooling3d(const T& x, const Pooling3dParams& params) {
  return applied(make_max_pooling3d(params), {x});
}
LOCKSTEP_INSTANTIATE_1(max_pooling3d, const Pooling3dParams&)
template <Operand T>
T average_pooling1d(const T& x, const Pooling1dParams& params) {
  return applied(make_average_pooling1d(params), {x});
}
LOCKSTEP_INSTANTIATE_1(average_pooling1d, const Pooling1dParams&)
template <Operand T>
T average_pooling3d(const T& x, const Pooling3dParams& params) {
  return applied(make_average_pooling3d(params), {x});
}
LOCKSTEP_INSTANTIATE_1(average_pooling3d, const Pooling3dParams&)
template <Operand T>
T global_average_pooling1d(const T& x) {
  return applied(make_global_average_pooling1d(), {x});
}
LOCKSTEP_INSTANTIATE_1(global_average_pooling1d)
template <Operand T>
T global_average_pooling3d(const T& x) {
  return applied(make_global_average_pooling3d(), {x});
}
LOCKSTEP_INSTANTIATE_1(global_average_pooling3d)

namespace {

PoolingParams general(const Pooling2dParams& p) {
  return {p.pool, p.stride, p.padding, p.count_padding};
}

}  // namespace

OpPtr make_max_pooling2d(const Pooling2dParams& p) { return make_max_pooling(general(p)); }
OpPtr make_average_pooling2d(const Pooling2dParams& p) { return make_average_pooling(general(p)); }
OpPtr make_global_average_pooling2d() { return make_global_average_pooling(2); }

template <Operand T>
T max_pooling2d(const T& x, const Pooling2dParams& params) {
  return applied(make_max_pooling2d(params), {x});
}
LOCKSTEP_INSTANTIATE_1(max_pooling2d, const Pooling2dParams&)
template <Operand T>
T average_pooling2d(const T& x, const Pooling2dParams& params) {
  return applied(make_average_pooling2d(params), {x});
}
LOCKSTEP_INSTANTIATE_1(average_pooling2d, const Pooling2dParams&)
template <Operand T>
T global_average_pooling2d(const T& x) {
  return applied(make_global_average_pooling2d(), {x});
}
LOCKSTEP_INSTANTIATE_1(global_average_pooling2d)

}  // namespace lockstep::ops
