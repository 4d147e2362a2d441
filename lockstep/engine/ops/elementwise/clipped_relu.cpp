#include "lockstep/engine/kernels/elementwise/clipped_relu.h"

#include <cmath>

#include "lockstep/base/error.h"
#include "lockstep/engine/ops/applied.h"
#include "lockstep/engine/ops/elementwise/elementwise.h"
#include "lockstep/engine/ops/op_makers.h"

namespace lockstep::ops {
namespace {

class ClippedRelu final : public Elementwise {
 public:
  explicit ClippedRelu(double ceiling) : ceiling_(ceiling) {
    if (!(ceiling > 0) || !std::isfinite(static_cast<float>(ceiling))) {
      throw InvalidArgument("[clipped_relu] the ceiling must be above 0 and finite, received " +
                            std::to_string(ceiling));
    }
  }
  std::string_view type() const override { return "clipped_relu"; }
  bool has_constant_slope() const override { return true; }
  std::vector<Value> tangent(std::span<const Value> inputs,
                             std::span<const Value> changes) const override {
    return elementwise_tangent(*this, inputs, changes);
  }

 private:
  kernels::Kernel kernel(const kernels::Table& table, const TensorSpec& src) const override {
    return kernels::compile(table, kernels::ClippedReluProblem{src, ceiling_});
  }

  double ceiling_;
};

}  // namespace

OpPtr make_clipped_relu(double ceiling) { return std::make_shared<ClippedRelu>(ceiling); }

template <Operand T>
T clipped_relu(const T& x, double ceiling) {
  return applied(make_clipped_relu(ceiling), {x});
}
LOCKSTEP_INSTANTIATE_1(clipped_relu, double)

}  // namespace lockstep::ops
