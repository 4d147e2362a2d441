#include "lockstep/engine/kernels/elementwise/dropout.h"

#include "lockstep/base/error.h"
#include "lockstep/engine/graph/op.h"
#include "lockstep/engine/ops/applied.h"
#include "lockstep/engine/ops/op_makers.h"

namespace lockstep::ops {
namespace {

class Dropout final : public FloatOp {
 public:
  Dropout(double p, uint64_t layer) : p_(p), layer_(layer) {}
  std::string_view type() const override { return "dropout"; }
  std::vector<Shape> infer_shapes(std::span<const Shape> in) const override {
    check_count(*this, in.size(), 1, 1);
    if (in[0].rank() < 1) {
      throw InvalidArgument("[dropout] expected an input of n x ..., received " +
                            in[0].to_string());
    }
    return {in[0]};
  }
  bool draws_random_numbers() const override { return p_ > 0; }
  bool has_constant_slope() const override { return true; }
  std::vector<Value> tangent(std::span<const Value>,
                             std::span<const Value> changes) const override {
    return apply_all(shared_from_this(), changes);
  }
  kernels::Kernel compile(const kernels::Table& table,
                          std::span<const TensorSpec> in) const override {
    return kernels::compile(table, kernels::DropoutProblem{in[0], p_, layer_});
  }

 private:
  double p_;
  uint64_t layer_;
};

}  // namespace

OpPtr make_dropout(double p, uint64_t layer) {
  if (!(p >= 0 && p < 1)) {
    throw InvalidArgument("[dropout] expected a probability of at least 0 and below 1, received " +
                          std::to_string(p));
  }
  return std::make_shared<Dropout>(p, layer);
}

Tensor dropout(const Tensor& x, double p, uint64_t layer, const StepInfo& step) {
  return apply_op(make_dropout(p, layer), {x}, step)[0];
}
Value dropout(const Value& x, double p, uint64_t layer) {
  return applied(make_dropout(p, layer), {x});
}

}  // namespace lockstep::ops
