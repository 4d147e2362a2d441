// Base class of ops that only change the shape.
#pragma once

#include "lockstep/engine/graph/op.h"
#include "lockstep/engine/kernels/shapes/reshape.h"

namespace lockstep::ops {

class Reshaping : public Op {
 public:
  std::vector<Shape> infer(std::span<const Shape> in) const final {
    check_count(*this, in, 1, 1);
    return {result(in[0])};
  }
  bool takes_narrow(size_t input) const final { return input == 0; }
  kernels::Kernel compile(const kernels::Table& table, std::span<const TensorSpec> in) const final {
    check_floats(*this, in);
    return table.reshape({in[0], result(in[0].shape)});
  }

 private:
  // Returns the output shape. Throws InvalidArgument, naming the op, if the input does not fit.
  virtual Shape result(const Shape& x) const = 0;
};

}  // namespace lockstep::ops
