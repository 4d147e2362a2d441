#include "lockstep/engine/graph/op.h"

#include "lockstep/base/error.h"

namespace lockstep {

std::vector<Value> elementwise_tangent(const Op& op, std::span<const Value> inputs,
                                       std::span<const Value> changes) {
  const std::vector<Value> x(inputs.begin(), inputs.end());
  std::vector<bool> wanted(x.size(), false);
  wanted[0] = true;
  return {op.gradient({x, apply_all(op.shared_from_this(), x), {changes[0]}, wanted})[0]};
}

std::vector<TensorSpec> FloatOp::infer(std::span<const TensorSpec> inputs) const {
  std::vector<Shape> shapes;
  for (const TensorSpec& spec : inputs) shapes.push_back(spec.shape);
  std::vector<TensorSpec> results;
  for (const Shape& shape : infer_shapes(shapes)) results.push_back({shape, DType::f32, nullptr});
  check_floats(*this, inputs);
  return results;
}

std::vector<Shape> infer_of_floats(const Op& op, std::span<const Shape> inputs) {
  std::vector<TensorSpec> specs;
  for (const Shape& shape : inputs) specs.push_back({shape, DType::f32, nullptr});
  std::vector<Shape> shapes;
  for (const TensorSpec& result : op.infer(specs)) shapes.push_back(result.shape);
  return shapes;
}

void check_count(const Op& op, size_t inputs, size_t least, size_t most) {
  if (inputs >= least && inputs <= most) return;
  std::string wanted = std::to_string(least);
  if (most == static_cast<size_t>(-1)) {
    wanted += " or more";
  } else if (most != least) {
    wanted += " to " + std::to_string(most);
  }
  throw InvalidArgument("[" + std::string(op.type()) + "] takes " + wanted + " inputs, received " +
                        std::to_string(inputs));
}

void check_floats(const Op& op, std::span<const TensorSpec> inputs) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    const TensorSpec& spec = inputs[i];
    if (spec.dtype == DType::f32 || (is_narrow(spec.dtype) && op.takes_narrow(i))) continue;
    throw InvalidArgument("[" + std::string(op.type()) + "] expected elements of f32, received " +
                          spec.plain().to_string());
  }
}

void check_precision(const kernels::Table& table, std::span<const TensorSpec> inputs) {
  for (const auto& spec : inputs) {
    kernels::check_precision(table, spec.dtype);
  }
}

}  // namespace lockstep
