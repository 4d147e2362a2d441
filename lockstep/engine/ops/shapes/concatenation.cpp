#include "lockstep/engine/kernels/shapes/concatenation.h"

#include "lockstep/base/error.h"
#include "lockstep/engine/graph/op.h"
#include "lockstep/engine/ops/applied.h"
#include "lockstep/engine/ops/elementwise/pointwise.h"
#include "lockstep/engine/ops/op_makers.h"

namespace lockstep::ops {
namespace {

class Concatenation final : public FloatOp {
 public:
  explicit Concatenation(int axis) : axis_(axis) {}
  std::string_view type() const override { return "concat"; }
  bool takes_narrow(size_t) const override { return true; }
  std::vector<Shape> infer_shapes(std::span<const Shape> in) const override {
    check_count(*this, in.size(), 1, static_cast<size_t>(-1));
    std::vector<int64_t> dims = in[0].dims();
    if (axis_ < 0 || axis_ >= in[0].rank()) {
      throw InvalidArgument("[concat] " + in[0].to_string() + " has no dimension " +
                            std::to_string(axis_));
    }
    const auto axis = static_cast<size_t>(axis_);
    int64_t total = 0;
    for (const auto& shape : in) {
      std::vector<int64_t> others = shape.dims();
      if (others.size() == dims.size()) {
        total += others[axis];
        others[axis] = dims[axis];
      }
      if (others != dims) {
        throw InvalidArgument("[concat] inputs must agree in all dimensions but " +
                              std::to_string(axis_) + ", received " + in[0].to_string() + " and " +
                              shape.to_string());
      }
    }
    dims[axis] = total;
    return {Shape(dims)};
  }
  kernels::Kernel compile(const kernels::Table& table,
                          std::span<const TensorSpec> in) const override {
    return kernels::compile(table, kernels::ConcatenationProblem{{in.begin(), in.end()}, axis_});
  }
  bool has_constant_slope() const override { return true; }
  std::vector<Value> tangent(std::span<const Value> inputs,
                             std::span<const Value> changes) const override {
    std::vector<Value> parts(changes.begin(), changes.end());
    for (size_t i = 0; i < parts.size(); ++i) {
      if (parts[i].defined()) continue;
      parts[i] = broadcast_to(applied(make_scalar_like(0), {inputs[i]}), inputs[i].shape());
    }
    return apply_all(shared_from_this(), parts);
  }

 private:
  int axis_;
};

}  // namespace

OpPtr make_concat(int axis) { return std::make_shared<Concatenation>(axis); }

Tensor concat(const std::vector<Tensor>& parts, int axis) {
  if (parts.empty()) throw InvalidArgument("[concat] takes 1 or more inputs, received 0");
  return applied(make_concat(axis), parts);
}
Value concat(const std::vector<Value>& parts, int axis) {
  if (parts.empty()) throw InvalidArgument("[concat] takes 1 or more inputs, received 0");
  return applied(make_concat(axis), parts);
}

}  // namespace lockstep::ops
