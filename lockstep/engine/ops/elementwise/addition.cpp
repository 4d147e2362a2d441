#include "lockstep/engine/kernels/elementwise/addition.h"

#include "lockstep/base/error.h"
#include "lockstep/engine/ops/applied.h"
#include "lockstep/engine/ops/elementwise/elementwise.h"
#include "lockstep/engine/ops/op_makers.h"

namespace lockstep::ops {
namespace {

class Addition final : public ElementwiseOfMany {
 public:
  std::string_view type() const override { return "add"; }
  bool takes_narrow(size_t) const override { return true; }
  bool has_constant_slope() const override { return true; }
  std::vector<Value> tangent(std::span<const Value>,
                             std::span<const Value> changes) const override {
    std::vector<Value> terms;
    for (const Value& change : changes) {
      if (change.defined()) terms.push_back(change);
    }
    return apply_all(shared_from_this(), terms);
  }

 private:
  kernels::Kernel kernel(const kernels::Table& table, std::vector<TensorSpec> src) const override {
    return kernels::compile(table, kernels::AdditionProblem{std::move(src)});
  }
};

}  // namespace

OpPtr make_add() { return std::make_shared<Addition>(); }

Tensor add(const std::vector<Tensor>& terms) {
  if (terms.empty()) throw InvalidArgument("[add] takes 1 or more inputs, received 0");
  return applied(make_add(), terms);
}
Value add(const std::vector<Value>& terms) {
  if (terms.empty()) throw InvalidArgument("[add] takes 1 or more inputs, received 0");
  return applied(make_add(), terms);
}

}  // namespace lockstep::ops
