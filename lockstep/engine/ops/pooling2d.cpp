#include "lockstep/engine/ops/pooling2d.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/engine/ops/window.h"

namespace lockstep::ops {
namespace {

class Pooling2d final : public Op {
 public:
  enum class Kind { max, average, global_average };
  Pooling2d(Kind kind, const Pooling2dParams& params) : kind_(kind), params_(params) {}

  std::string_view type() const override {
    switch (kind_) {
      case Kind::max:
        return "max_pooling2d";
      case Kind::average:
        return "average_pooling2d";
      case Kind::global_average:
        return "global_average_pooling2d";
    }
    return "";
  }
  bool takes_bf16(size_t input) const override { return input == 0; }

  std::vector<Shape> infer(std::span<const Shape> in) const override {
    check_count(*this, in, 1, 1);
    check_image(type(), in[0]);
    return {result(in[0], window_for(in[0]))};
  }

  kernels::Kernel compile(const kernels::Table& table,
                          std::span<const TensorSpec> in) const override {
    check_floats(*this, in);
    using Problem = kernels::PoolingProblem;
    const auto window = window_for(in[0].shape);
    const auto kind = kind_ == Kind::max      ? Problem::Kind::max
                      : params_.count_padding ? Problem::Kind::average_with_padding
                                              : Problem::Kind::average_without_padding;
    return table.pooling({in[0], result(in[0].shape, window), window, kind});
  }

  std::optional<Size2d> side_by_side_maximum() const {
    if (kind_ != Kind::max || params_.stride != params_.pool) return std::nullopt;
    if (params_.padding != Padding2d{}) return std::nullopt;
    return params_.pool;
  }

 private:
  static Shape result(const Shape& x, const kernels::Window2d& w) {
    return Shape{x[0], x[1], kernels::window_positions(w, 0, x[2]),
                 kernels::window_positions(w, 1, x[3])};
  }

  kernels::Window2d window_for(const Shape& x) const {
    if (kind_ == Kind::global_average) return {.kernel = {x[2], x[3]}};
    const auto w =
        resolve_window(type(), params_.pool, params_.stride, {1, 1}, params_.padding, x[2], x[3]);
    for (size_t a = 0; a < 2; ++a) {
      if (w.pad_begin[a] >= w.kernel[a] || w.pad_end[a] >= w.kernel[a]) {
        throw InvalidArgument(
            "[" + std::string(type()) + "] padding must be smaller than the window of " +
            std::to_string(w.kernel[0]) + "x" + std::to_string(w.kernel[1]) + ", received " +
            std::to_string(std::max(w.pad_begin[a], w.pad_end[a])));
      }
    }
    return w;
  }

  Kind kind_;
  Pooling2dParams params_;
};

}  // namespace

std::optional<Size2d> side_by_side_max_pooling(const Op& op) {
  const auto* pooling = dynamic_cast<const Pooling2d*>(&op);
  return pooling ? pooling->side_by_side_maximum() : std::nullopt;
}

OpPtr make_max_pooling2d(const Pooling2dParams& params) {
  return std::make_shared<Pooling2d>(Pooling2d::Kind::max, params);
}
OpPtr make_average_pooling2d(const Pooling2dParams& params) {
  return std::make_shared<Pooling2d>(Pooling2d::Kind::average, params);
}
OpPtr make_global_average_pooling2d() {
  return std::make_shared<Pooling2d>(Pooling2d::Kind::global_average, Pooling2dParams{});
}

Tensor max_pooling2d(const Tensor& x, const Pooling2dParams& params) {
  return apply_op(make_max_pooling2d(params), {x})[0];
}
Tensor average_pooling2d(const Tensor& x, const Pooling2dParams& params) {
  return apply_op(make_average_pooling2d(params), {x})[0];
}
Tensor global_average_pooling2d(const Tensor& x) {
  return apply_op(make_global_average_pooling2d(), {x})[0];
}

}  // namespace lockstep::ops
