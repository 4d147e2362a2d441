#include "lockstep/engine/ops/flatten.h"

#include "lockstep/base/error.h"

namespace lockstep::ops {
namespace {

class Flatten final : public Op {
 public:
  std::string_view type() const override { return "flatten"; }
  bool takes_bf16(size_t input) const override { return input == 0; }
  std::vector<Shape> infer(std::span<const Shape> in) const override {
    check_count(*this, in, 1, 1);
    return {result(in[0])};
  }
  kernels::Kernel compile(const kernels::Table& table,
                          std::span<const TensorSpec> in) const override {
    check_floats(*this, in);
    return table.reshape({in[0], result(in[0].shape)});
  }

 private:
  static Shape result(const Shape& x) {
    if (x.rank() < 1) {
      throw InvalidArgument("[flatten] an input of n x ... wanted, received " + x.to_string());
    }
    return Shape{x[0], x.without_batch().elements()};
  }
};

}  // namespace

OpPtr make_flatten() { return std::make_shared<Flatten>(); }

Tensor flatten(const Tensor& x) { return apply_op(make_flatten(), {x})[0]; }

}  // namespace lockstep::ops
