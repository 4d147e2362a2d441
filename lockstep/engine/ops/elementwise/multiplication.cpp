#include "lockstep/engine/kernels/elementwise/multiplication.h"

#include "lockstep/base/error.h"
#include "lockstep/engine/ops/elementwise/elementwise.h"
#include "lockstep/engine/ops/ops.h"

namespace lockstep::ops {
namespace {

class Multiplication final : public ElementwiseOfMany {
 public:
  std::string_view type() const override { return "multiplication"; }

 private:
  kernels::Kernel kernel(const kernels::Table& table, std::vector<TensorSpec> src) const override {
    return table.multiplication({std::move(src)});
  }
};

}  // namespace

OpPtr make_multiplication() { return std::make_shared<Multiplication>(); }

Tensor multiplication(const std::vector<Tensor>& factors) {
  if (factors.empty()) throw InvalidArgument("[multiplication] takes 1 or more inputs, received 0");
  return apply_op(make_multiplication(), factors)[0];
}

}  // namespace lockstep::ops

namespace lockstep {

Value operator*(const Value& a, const Value& b) {
  return apply(ops::make_multiplication(), {a, b});
}

}  // namespace lockstep
