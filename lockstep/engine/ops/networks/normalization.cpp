// Normalization.
#include <cmath>

#include "lockstep/base/counted.h"
#include "lockstep/base/error.h"
#include "lockstep/engine/graph/op.h"
#include "lockstep/engine/kernels/images/normalize_images.h"
#include "lockstep/engine/kernels/normalization/batch_normalization.h"
#include "lockstep/engine/kernels/normalization/group_normalization.h"
#include "lockstep/engine/ops/applied.h"
#include "lockstep/engine/ops/networks/normalized_together.h"
#include "lockstep/engine/ops/networks/pooling.h"
#include "lockstep/engine/ops/networks/window.h"
#include "lockstep/engine/ops/op_makers.h"
#include "lockstep/engine/ops/views.h"

namespace lockstep::ops {

namespace {

class BatchNormalization final : public FloatOp {
 public:
  BatchNormalization(double epsilon, bool training, bool relu,
                     std::optional<Size2d> max_pool = std::nullopt, bool bias = false)
      : epsilon_(epsilon), training_(training), relu_(relu), max_pool_(max_pool), bias_(bias) {}
  std::string_view type() const override { return "batch_normalization"; }
  bool training() const { return training_; }
  bool takes_narrow(size_t input) const override { return input == 0; }

  std::vector<Shape> infer_shapes(std::span<const Shape> in) const override {
    const size_t inputs = (training_ ? 3 : 5) + (bias_ ? 1 : 0);
    check_count(*this, in.size(), inputs, inputs);
    const Shape& x = in[0];
    if (x.rank() < 2 || x.rank() > 5 || x.elements() == 0) {
      throw InvalidArgument(
          "[batch_normalization] expected an input of n x c or n x c x space, received " +
          x.to_string());
    }
    const Shape channels{x[1]};
    for (size_t i = 1; i < in.size(); ++i) {
      if (!(in[i] == channels)) {
        throw InvalidArgument("[batch_normalization] scale, shift and statistics need " +
                              counted(x[1], "element") + ", received " + in[i].to_string());
      }
    }
    Shape y = x;
    if (max_pool_) {
      // Throws the error that the pooling op would have thrown.
      y = infer_of_floats(*ops::make_max_pooling2d({.pool = *max_pool_, .stride = *max_pool_}),
                          {&x, 1})[0];
    }
    if (!training_) return {y};
    return {y, channels, channels};
  }

  kernels::Kernel compile(const kernels::Table& table,
                          std::span<const TensorSpec> in) const override {
    return kernels::compile(table, kernels::BatchNormalizationProblem{in[0], epsilon_, relu_,
                                                                      training_, max_pool_, bias_});
  }

  std::vector<Value> decomposed(std::span<const Value> in) const override {
    Value x = in[0];
    if (bias_) x = x + by_channel(in.back(), x.shape());
    Value from_mean, variance;
    if (training_) {
      std::vector<int> axes{0};
      for (int a = 2; a < x.shape().rank(); ++a) axes.push_back(a);
      from_mean = x - mean(x, axes, true);
      variance = mean(square(from_mean), axes, true);
    } else {
      from_mean = x - detached(by_channel(in[3], x.shape()));
      variance = detached(by_channel(in[4], x.shape()));
    }
    Value y = from_mean * rsqrt(variance + epsilon_) * by_channel(in[1], x.shape()) +
              by_channel(in[2], x.shape());
    if (relu_) y = applied(make_relu(), {y});
    if (max_pool_) {
      y = applied(make_max_pooling2d({.pool = *max_pool_, .stride = *max_pool_}), {y});
    }
    if (!training_) return {y};
    return {y, Value(), Value()};
  }

  std::optional<FusedOps> fuse(const Op& next) const override {
    const auto pool = relu_ ? ops::side_by_side_max_pooling(next) : std::nullopt;
    if (max_pool_ || (!pool && (relu_ || next.type() != "relu"))) return std::nullopt;
    auto fused = std::make_shared<BatchNormalization>(epsilon_, training_, true, pool, bias_);
    if (training_) return FusedOps{fused, {-1, 1, 2}, {0}};
    return FusedOps{fused, {-1}, {0}};
  }

  OpPtr with_bias() const override {
    if (bias_) return nullptr;
    return std::make_shared<BatchNormalization>(epsilon_, training_, relu_, max_pool_, true);
  }

  bool offered_by(const kernels::Table& table) const override {
    if (bias_ && !kernels::normalizes_with_bias(table)) return false;
    return !max_pool_ || (kernels::normalizes_with_max_pooling(table) &&
                          (*max_pool_)[0] * (*max_pool_)[1] <= kernels::kMostWindowElements);
  }

 private:
  double epsilon_;
  bool training_, relu_;
  std::optional<Size2d> max_pool_;  // after the ReLU
  bool bias_;                       // a bias is added to the first input
};

}  // namespace

std::optional<int64_t> values_of_a_channel(const Op& op, const Shape& x) {
  const auto* const of = dynamic_cast<const BatchNormalization*>(&op);
  if (of == nullptr || !of->training()) return std::nullopt;
  return x.elements() / x[1];
}

OpPtr make_batch_normalization(double epsilon, bool training) {
  if (!(epsilon > 0)) {
    throw InvalidArgument("[batch_normalization] epsilon must be above 0, received " +
                          std::to_string(epsilon));
  }
  return std::make_shared<BatchNormalization>(epsilon, training, false);
}

template <Operand T>
BatchNormalizationResult<T> batch_normalization_training(const T& x, const Same<T>& scale,
                                                         const Same<T>& shift, double epsilon) {
  return named("batch_normalization_training", [&] {
    const OpPtr op = make_batch_normalization(epsilon, true);
    const Shape shapes[] = {x.shape(), scale.shape(), shift.shape()};
    infer_of_floats(*op, shapes);  // throws what concerns the shapes first
    // Layers are built for one observation, too; networks refuse such values where they run.
    if (std::same_as<T, Tensor> && values_of_a_channel(*op, x.shape()) == 1) {
      throw InvalidArgument(
          "[batch_normalization_training] x (" + x.shape().to_string() +
              ") has one value for each channel, whose normalization gives 0 whatever the value is",
          "give it several observations, or statistics: batch_normalization()");
    }
    const std::vector<T> outputs = all_outputs(op, {x, scale, shift});
    return BatchNormalizationResult<T>{outputs[0], outputs[1], outputs[2]};
  });
}
template BatchNormalizationResult<Tensor> batch_normalization_training(const Tensor& x,
                                                                       const Tensor& scale,
                                                                       const Tensor& shift,
                                                                       double epsilon);
template BatchNormalizationResult<Value> batch_normalization_training(const Value& x,
                                                                      const Value& scale,
                                                                      const Value& shift,
                                                                      double epsilon);

template <Operand T>
T batch_normalization(const T& x, const Same<T>& scale, const Same<T>& shift, const Same<T>& mean,
                      const Same<T>& variance, double epsilon) {
  return applied(make_batch_normalization(epsilon, false), {x, scale, shift, mean, variance});
}
template Tensor batch_normalization(const Tensor& x, const Tensor& scale, const Tensor& shift,
                                    const Tensor& mean, const Tensor& variance, double epsilon);
template Value batch_normalization(const Value& x, const Value& scale, const Value& shift,
                                   const Value& mean, const Value& variance, double epsilon);

namespace {

class GroupNormalization final : public FloatOp {
 public:
  GroupNormalization(int64_t groups, double epsilon) : groups_(groups), epsilon_(epsilon) {
    if (groups < 0) {
      throw InvalidArgument("[group_normalization] expected 1 or more groups, received " +
                            std::to_string(groups));
    }
    if (!(epsilon > 0) || !std::isfinite(epsilon)) {
      throw InvalidArgument("[group_normalization] epsilon must be above 0 and finite, received " +
                            std::to_string(epsilon));
    }
  }
  std::string_view type() const override { return "group_normalization"; }
  int64_t groups_in(const Shape& x) const { return groups_ == group_per_channel ? x[1] : groups_; }

  std::vector<Shape> infer_shapes(std::span<const Shape> in) const override {
    check_count(*this, in.size(), 3, 3);
    const Shape& x = in[0];
    if (x.rank() < 2 || x.elements() == 0) {
      throw InvalidArgument(
          "[group_normalization] expected an input of n x c or n x c x space, received " +
          x.to_string());
    }
    if (x[1] % groups_in(x) != 0) {
      throw InvalidArgument("[group_normalization] " + counted(x[1], "channel") +
                            " cannot be cut into " + counted(groups_, "group") +
                            " of one size (input " + x.to_string() + ")");
    }
    for (size_t i = 1; i < in.size(); ++i) {
      if (!(in[i] == Shape{x[1]})) {
        throw InvalidArgument("[group_normalization] scale and shift need " +
                              counted(x[1], "element") + ", received " + in[i].to_string());
      }
    }
    return {x};
  }

  kernels::Kernel compile(const kernels::Table& table,
                          std::span<const TensorSpec> in) const override {
    return kernels::compile(
        table, kernels::GroupNormalizationProblem{in[0], groups_in(in[0].shape), epsilon_});
  }
  std::vector<Value> decomposed(std::span<const Value> in) const override {
    const Shape& x = in[0].shape();
    const int64_t groups = groups_in(x);
    const Value values = reshaped(in[0], Shape{x[0], groups, x.elements() / (x[0] * groups)});
    const Value from_mean = values - mean(values, {2}, true);
    const Value variance = mean(square(from_mean), {2}, true);
    const Value normalized = reshaped(from_mean * rsqrt(variance + epsilon_), x);
    return {normalized * by_channel(in[1], x) + by_channel(in[2], x)};
  }

 private:
  int64_t groups_;
  double epsilon_;
};

}  // namespace

std::optional<int64_t> values_of_a_group(const Op& op, const Shape& x) {
  const auto* const of = dynamic_cast<const GroupNormalization*>(&op);
  if (of == nullptr) return std::nullopt;
  return x.elements() / x[0] / of->groups_in(x);
}

OpPtr make_group_normalization(int64_t groups, double epsilon) {
  return std::make_shared<GroupNormalization>(groups, epsilon);
}

template <Operand T>
T group_normalization(const T& x, const Same<T>& scale, const Same<T>& shift, int64_t groups,
                      double epsilon) {
  return named("group_normalization", [&] {
    const OpPtr op = make_group_normalization(groups, epsilon);
    const Shape shapes[] = {x.shape(), scale.shape(), shift.shape()};
    infer_of_floats(*op, shapes);  // throws what concerns the shapes first
    // Networks refuse such values where they train.
    if (std::same_as<T, Tensor> && values_of_a_group(*op, x.shape()) == 1) {
      throw InvalidArgument(
          "[group_normalization] x (" + x.shape().to_string() +
              ") has one value for each group, whose normalization gives 0 whatever the value is",
          "form fewer groups, or leave it out where a channel has one element");
    }
    return applied(op, {x, scale, shift});
  });
}
LOCKSTEP_INSTANTIATE_3(group_normalization, int64_t, double)

namespace {

class NormalizeImages final : public Op {
 public:
  std::string_view type() const override { return "normalize_images"; }
  std::vector<TensorSpec> infer(std::span<const TensorSpec> in) const override {
    check_count(*this, in.size(), 3, 3);
    const Shape& x = in[0].shape;
    if (x.rank() < 2 || x.elements() == 0) {
      throw InvalidArgument(
          "[normalize_images] expected an input of n x c or n x c x space, received " +
          x.to_string());
    }
    for (size_t i = 1; i < 3; ++i) {
      if (!(in[i].shape == Shape{x[1]})) {
        throw InvalidArgument("[normalize_images] offset and factor need " +
                              counted(x[1], "element") + ", received " + in[i].shape.to_string());
      }
    }
    if (in[0].dtype != DType::u8) check_floats(*this, in.first(1));
    check_floats(*this, in.subspan(1));
    return {{x, DType::f32, nullptr}};
  }
  kernels::Kernel compile(const kernels::Table& table,
                          std::span<const TensorSpec> in) const override {
    return kernels::compile(table, kernels::NormalizeImagesProblem{in[0]});
  }
  bool has_constant_slope() const override { return true; }
  std::vector<Value> tangent(std::span<const Value> inputs,
                             std::span<const Value> changes) const override {
    return elementwise_tangent(*this, inputs, changes);
  }
};

}  // namespace

OpPtr make_normalize_images() { return std::make_shared<NormalizeImages>(); }

template <Operand T>
T normalize_images(const T& x, const Same<T>& offset, const Same<T>& factor) {
  return applied(make_normalize_images(), {x, offset, factor});
}
LOCKSTEP_INSTANTIATE_3(normalize_images)

}  // namespace lockstep::ops
