#include "lockstep/engine/kernels/losses/softmax.h"

#include "lockstep/base/error.h"
#include "lockstep/engine/graph/op.h"
#include "lockstep/engine/ops/applied.h"
#include "lockstep/engine/ops/op_makers.h"
#include "lockstep/engine/ops/shapes/views.h"

namespace lockstep::ops {
namespace {

class Softmax final : public FloatOp {
 public:
  std::string_view type() const override { return "softmax"; }
  std::vector<Shape> infer_shapes(std::span<const Shape> in) const override {
    check_count(*this, in.size(), 1, 1);
    if (in[0].rank() < 2 || in[0].elements() == 0) {
      throw InvalidArgument("[softmax] expected an input of n x c or n x c x space, received " +
                            in[0].to_string());
    }
    return {in[0]};
  }
  kernels::Kernel compile(const kernels::Table& table,
                          std::span<const TensorSpec> in) const override {
    return kernels::compile(table, kernels::SoftmaxProblem{in[0]});
  }
  // The difference before the product: it is 0 for changes that are the same in all classes.
  std::vector<Value> tangent(std::span<const Value> in,
                             std::span<const Value> changes) const override {
    const Value y = applied(shared_from_this(), {in[0]});
    return {y * (changes[0] - sum(y * changes[0], {1}, true))};
  }
  std::optional<FusedOps> fuse(const Op& next) const override {
    if (next.type() != "cross_entropy") return std::nullopt;
    return FusedOps{make_softmax_cross_entropy(), {1}, {0}};
  }
};

}  // namespace

OpPtr make_softmax() { return std::make_shared<Softmax>(); }

template <Operand T>
T softmax(const T& x) {
  return named("softmax", [&] { return applied(make_softmax(), {x}); });
}
LOCKSTEP_INSTANTIATE_1(softmax)

template <Operand T>
T softmax(const T& x, int axis) {
  return named("softmax", [&] {
    const int at = resolved_axis("softmax", axis, x.shape());
    if (x.shape().elements() == 0) return x;
    const int64_t size = x.shape()[at];
    int64_t before = 1;
    for (int a = 0; a < at; ++a) before *= x.shape()[a];
    const Shape as_images{before, size, x.shape().elements() / (before * size)};
    return reshaped(softmax(reshaped(x, as_images)), x.shape());
  });
}
LOCKSTEP_INSTANTIATE_1(softmax, int)

}  // namespace lockstep::ops
