// Base class of ops that only change the shape.
#pragma once

#include "lockstep/engine/graph/op.h"
#include "lockstep/engine/kernels/shapes/reshape.h"

namespace lockstep::ops {

class Reshaping : public Op {
 public:
  std::vector<TensorSpec> infer(std::span<const TensorSpec> in) const final {
    check_count(*this, in.size(), 1, 1);
    return {{result(in[0].shape), in[0].dtype, nullptr}};
  }
  bool takes_narrow(size_t input) const final { return input == 0; }
  bool has_constant_slope() const final { return true; }
  std::vector<Value> tangent(std::span<const Value>, std::span<const Value> changes) const final {
    return apply_all(shared_from_this(), changes);
  }
  kernels::Kernel compile(const kernels::Table& table, std::span<const TensorSpec> in) const final {
    return kernels::compile(table, kernels::ReshapeProblem{in[0], result(in[0].shape)});
  }

 private:
  // Returns the output shape. Throws InvalidArgument, naming the op, if the input does not fit.
  virtual Shape result(const Shape& x) const = 0;
};

}  // namespace lockstep::ops
