#include "lockstep/engine/ops/multiplication.h"

#include "lockstep/base/error.h"

namespace lockstep::ops {
namespace {

class Multiplication final : public Op {
 public:
  std::string_view type() const override { return "multiplication"; }
  std::vector<Shape> infer(std::span<const Shape> in) const override {
    check_count(*this, in, 1, static_cast<size_t>(-1));
    for (const auto& shape : in) {
      if (!(shape == in[0])) {
        throw InvalidArgument("[multiplication] inputs of one shape wanted, received " +
                              in[0].to_string() + " and " + shape.to_string());
      }
    }
    return {in[0]};
  }
  kernels::Kernel compile(const kernels::Table& table,
                          std::span<const TensorSpec> in) const override {
    check_f32(*this, in);
    return table.multiplication({{in.begin(), in.end()}});
  }
};

}  // namespace

OpPtr make_multiplication() { return std::make_shared<Multiplication>(); }

Tensor multiplication(const std::vector<Tensor>& factors) {
  if (factors.empty()) throw InvalidArgument("[multiplication] takes 1 or more inputs, received 0");
  return apply_op(make_multiplication(), factors)[0];
}

}  // namespace lockstep::ops
