#include "lockstep/engine/kernels/elementwise/multiplication.h"

#include "lockstep/base/error.h"
#include "lockstep/engine/ops/applied.h"
#include "lockstep/engine/ops/elementwise/elementwise.h"
#include "lockstep/engine/ops/op_makers.h"

namespace lockstep::ops {
namespace {

class Multiplication final : public ElementwiseOfMany {
 public:
  std::string_view type() const override { return "multiply"; }
  // The sum over factors of the product with that factor's change in its place.
  std::vector<Value> tangent(std::span<const Value> inputs,
                             std::span<const Value> changes) const override {
    std::vector<Value> terms;
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (!changes[i].defined()) continue;
      std::vector<Value> factors(inputs.begin(), inputs.end());
      factors[i] = changes[i];
      terms.push_back(applied(shared_from_this(), factors));
    }
    return apply_all(make_add(), terms);
  }

 private:
  kernels::Kernel kernel(const kernels::Table& table, std::vector<TensorSpec> src) const override {
    return kernels::compile(table, kernels::MultiplicationProblem{std::move(src)});
  }
};

}  // namespace

OpPtr make_multiply() { return std::make_shared<Multiplication>(); }

Tensor multiply(const std::vector<Tensor>& factors) {
  if (factors.empty()) throw InvalidArgument("[multiply] takes 1 or more inputs, received 0");
  return applied(make_multiply(), factors);
}
Value multiply(const std::vector<Value>& factors) {
  if (factors.empty()) throw InvalidArgument("[multiply] takes 1 or more inputs, received 0");
  return applied(make_multiply(), factors);
}

}  // namespace lockstep::ops
