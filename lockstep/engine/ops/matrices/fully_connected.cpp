#include "lockstep/engine/kernels/matrices/fully_connected.h"

#include "lockstep/base/error.h"
#include "lockstep/engine/graph/op.h"
#include "lockstep/engine/ops/applied.h"
#include "lockstep/engine/ops/elementwise/with_bias.h"
#include "lockstep/engine/ops/op_makers.h"

namespace lockstep::ops {
namespace {

class FullyConnected final : public FloatOp {
 public:
  explicit FullyConnected(bool bias) : bias_(bias) {}
  std::string_view type() const override { return "fully_connected"; }
  bool takes_narrow(size_t input) const override { return input == 0; }

  std::vector<Shape> infer_shapes(std::span<const Shape> in) const override {
    check_count(*this, in.size(), bias_ ? 3 : 2, bias_ ? 3 : 2);
    const Shape &x = in[0], &w = in[1];
    const std::string received = " (input " + x.to_string() + ", weights " + w.to_string() + ")";
    if (x.rank() < 2 || x.elements() == 0) {
      throw InvalidArgument("[fully_connected] expected an input of n x ..." + received);
    }
    if (w.rank() != 2 || w[0] < 1 || w[1] != x.elements() / x[0]) {
      throw InvalidArgument("[fully_connected] an observation has " +
                            std::to_string(x.elements() / x[0]) +
                            " elements, which do not fit the weights" + received);
    }
    if (bias_ && !(in[2] == Shape{w[0]})) {
      throw InvalidArgument("[fully_connected] expected a bias of " + std::to_string(w[0]) +
                            " elements, received " + in[2].to_string());
    }
    return {Shape{x[0], w[0]}};
  }

  kernels::Kernel compile(const kernels::Table& table,
                          std::span<const TensorSpec> in) const override {
    return kernels::compile(table, kernels::FullyConnectedProblem{in[0], in[1].shape[0], bias_});
  }
  std::vector<Value> tangent(std::span<const Value> inputs,
                             std::span<const Value> changes) const override {
    return product_tangent(make_fully_connected(false), inputs, changes);
  }

 private:
  bool bias_;
};

}  // namespace

OpPtr make_fully_connected(bool bias) { return std::make_shared<FullyConnected>(bias); }

template <Operand T>
T fully_connected(const T& x, const Same<T>& weights, const Same<T>& bias) {
  return applied(make_fully_connected(bias.defined()), with_bias(x, weights, bias));
}
LOCKSTEP_INSTANTIATE_3(fully_connected)

}  // namespace lockstep::ops
