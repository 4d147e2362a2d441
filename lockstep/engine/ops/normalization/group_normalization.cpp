#include "lockstep/engine/kernels/normalization/group_normalization.h"

#include <cmath>

#include "lockstep/base/error.h"
#include "lockstep/engine/graph/op.h"
#include "lockstep/engine/ops/applied.h"
#include "lockstep/engine/ops/normalization/normalized_together.h"
#include "lockstep/engine/ops/op_makers.h"
#include "lockstep/engine/ops/shapes/views.h"

namespace lockstep::ops {
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
      throw InvalidArgument("[group_normalization] " + std::to_string(x[1]) +
                            " channels cannot be cut into " + std::to_string(groups_) +
                            " groups of one size (input " + x.to_string() + ")");
    }
    for (size_t i = 1; i < in.size(); ++i) {
      if (!(in[i] == Shape{x[1]})) {
        throw InvalidArgument("[group_normalization] scale and shift need " + std::to_string(x[1]) +
                              " elements, received " + in[i].to_string());
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

}  // namespace lockstep::ops
