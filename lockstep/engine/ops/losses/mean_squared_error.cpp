#include "lockstep/engine/kernels/losses/mean_squared_error.h"

#include "lockstep/base/error.h"
#include "lockstep/engine/graph/op.h"
#include "lockstep/engine/ops/applied.h"
#include "lockstep/engine/ops/op_makers.h"
#include "lockstep/engine/ops/shapes/views.h"

namespace lockstep::ops {
namespace {

class MeanSquaredError final : public FloatOp {
 public:
  std::string_view type() const override { return "mean_squared_error"; }
  std::vector<Shape> infer_shapes(std::span<const Shape> in) const override {
    check_count(*this, in.size(), 2, 2);
    if (!(in[0] == in[1]) || in[0].rank() < 1 || in[0].elements() == 0) {
      throw InvalidArgument(
          "[mean_squared_error] expected prediction and target of one shape, received " +
          in[0].to_string() + " and " + in[1].to_string());
    }
    return {Shape{in[0][0]}};
  }
  kernels::Kernel compile(const kernels::Table& table,
                          std::span<const TensorSpec> in) const override {
    return kernels::compile(table, kernels::MeanSquaredErrorProblem{in[0]});
  }
  std::vector<Value> decomposed(std::span<const Value> in) const override {
    const Value difference =
        reshaped(in[0] - in[1], Shape{in[0].shape()[0], in[0].shape().without_batch().elements()});
    return {mean(square(difference), {1})};
  }
};

}  // namespace

OpPtr make_mean_squared_error() { return std::make_shared<MeanSquaredError>(); }

template <Operand T>
T mean_squared_error(const T& prediction, const Same<T>& target) {
  return applied(make_mean_squared_error(), {prediction, target});
}
LOCKSTEP_INSTANTIATE_2(mean_squared_error)

}  // namespace lockstep::ops
