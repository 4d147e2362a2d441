#include "lockstep/engine/ops/addition.h"

#include "lockstep/base/error.h"

namespace lockstep::ops {
namespace {

class Addition final : public Op {
 public:
  std::string_view type() const override { return "addition"; }
  std::vector<Shape> infer(std::span<const Shape> in) const override {
    check_count(*this, in, 1, static_cast<size_t>(-1));
    for (const auto& shape : in) {
      if (!(shape == in[0])) {
        throw InvalidArgument("[addition] inputs of one shape wanted, received " +
                              in[0].to_string() + " and " + shape.to_string());
      }
    }
    return {in[0]};
  }
  kernels::Kernel compile(const kernels::Table& table,
                          std::span<const TensorSpec> in) const override {
    check_f32(*this, in);
    return table.addition({{in.begin(), in.end()}});
  }
};

}  // namespace

OpPtr make_addition() { return std::make_shared<Addition>(); }

Tensor addition(const std::vector<Tensor>& terms) {
  if (terms.empty()) throw InvalidArgument("[addition] takes 1 or more inputs, received 0");
  return apply_op(make_addition(), terms)[0];
}

}  // namespace lockstep::ops
