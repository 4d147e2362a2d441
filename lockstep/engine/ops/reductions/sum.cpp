#include "lockstep/engine/kernels/reductions/sum.h"

#include "lockstep/base/error.h"
#include "lockstep/engine/graph/op.h"
#include "lockstep/engine/ops/applied.h"
#include "lockstep/engine/ops/op_makers.h"

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

OpPtr make_sum(double factor) { return std::make_shared<Sum>(factor); }

template <Operand T>
T sum(const T& x) {
  return applied(make_sum(), {x});
}
LOCKSTEP_INSTANTIATE_1(sum)

template <Operand T>
T mean(const T& x) {
  return named("mean", [&] {
    if (x.defined() && x.shape().elements() == 0) {
      throw InvalidArgument("[mean] no elements, input " + x.shape().to_string());
    }
    return applied(make_sum(1.0 / static_cast<double>(x.shape().elements())), {x});
  });
}
LOCKSTEP_INSTANTIATE_1(mean)

}  // namespace lockstep::ops
