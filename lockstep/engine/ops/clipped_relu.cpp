#include "lockstep/engine/ops/clipped_relu.h"

#include <cmath>

#include "lockstep/base/error.h"

namespace lockstep::ops {
namespace {

class ClippedRelu final : public Op {
 public:
  explicit ClippedRelu(double ceiling) : ceiling_(ceiling) {
    if (!(ceiling > 0) || !std::isfinite(static_cast<float>(ceiling))) {
      throw InvalidArgument("[clipped_relu] the ceiling must be above 0 and finite, received " +
                            std::to_string(ceiling));
    }
  }
  std::string_view type() const override { return "clipped_relu"; }
  std::vector<Shape> infer(std::span<const Shape> in) const override {
    check_count(*this, in, 1, 1);
    return {in[0]};
  }
  kernels::Kernel compile(const kernels::Table& table,
                          std::span<const TensorSpec> in) const override {
    check_f32(*this, in);
    return table.clipped_relu({in[0], ceiling_});
  }

 private:
  double ceiling_;
};

}  // namespace

OpPtr make_clipped_relu(double ceiling) { return std::make_shared<ClippedRelu>(ceiling); }

Tensor clipped_relu(const Tensor& x, double ceiling) {
  return apply_op(make_clipped_relu(ceiling), {x})[0];
}

}  // namespace lockstep::ops
