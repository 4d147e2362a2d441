#include "lockstep/engine/ops/relu.h"

#include "lockstep/base/error.h"

namespace lockstep::ops {
namespace {

class Relu final : public Op {
 public:
  std::string_view type() const override { return "relu"; }
  std::vector<Shape> infer(std::span<const Shape> in) const override {
    check_count(*this, in, 1, 1);
    return {in[0]};
  }
  kernels::Kernel compile(const kernels::Table& table,
                          std::span<const TensorSpec> in) const override {
    check_f32(*this, in);
    return table.relu({in[0]});
  }
};

}  // namespace

OpPtr make_relu() { return std::make_shared<Relu>(); }

Tensor relu(const Tensor& x) { return apply_op(make_relu(), {x})[0]; }

}  // namespace lockstep::ops
