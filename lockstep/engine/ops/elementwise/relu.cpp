#include "lockstep/engine/kernels/elementwise/relu.h"

#include "lockstep/engine/ops/applied.h"
#include "lockstep/engine/ops/elementwise/elementwise.h"
#include "lockstep/engine/ops/op_makers.h"

namespace lockstep::ops {
namespace {

class Relu final : public Elementwise {
 public:
  std::string_view type() const override { return "relu"; }
  bool takes_narrow(size_t input) const override { return input == 0; }
  bool has_constant_slope() const override { return true; }
  std::vector<Value> tangent(std::span<const Value> inputs,
                             std::span<const Value> changes) const override {
    return elementwise_tangent(*this, inputs, changes);
  }

 private:
  kernels::Kernel kernel(const kernels::Table& table, const TensorSpec& src) const override {
    return kernels::compile(table, kernels::ReluProblem{src});
  }
};

}  // namespace

OpPtr make_relu() { return std::make_shared<Relu>(); }

template <Operand T>
T relu(const T& x) {
  return applied(make_relu(), {x});
}
LOCKSTEP_INSTANTIATE_1(relu)

}  // namespace lockstep::ops
