// Base classes of elementwise ops.
#pragma once

#include <string>

#include "lockstep/base/error.h"
#include "lockstep/engine/graph/op.h"

namespace lockstep::ops {

// An op with one input and an output of the same shape.
class Elementwise : public FloatOp {
 public:
  std::vector<Shape> infer_shapes(std::span<const Shape> in) const final {
    check_count(*this, in.size(), 1, 1);
    return {in[0]};
  }
  kernels::Kernel compile(const kernels::Table& table, std::span<const TensorSpec> in) const final {
    return kernel(table, in[0]);
  }

 private:
  virtual kernels::Kernel kernel(const kernels::Table& table, const TensorSpec& src) const = 0;
};

// An op with one or more inputs and an output, all of the same shape. infer() throws
// InvalidArgument, naming the op, if shapes differ.
class ElementwiseOfMany : public FloatOp {
 public:
  std::vector<Shape> infer_shapes(std::span<const Shape> in) const final {
    check_count(*this, in.size(), 1, static_cast<size_t>(-1));
    for (const auto& shape : in) {
      if (shape == in[0]) continue;
      throw InvalidArgument("[" + std::string(type()) +
                            "] expected inputs of one shape, received " + in[0].to_string() +
                            " and " + shape.to_string());
    }
    return {in[0]};
  }
  kernels::Kernel compile(const kernels::Table& table, std::span<const TensorSpec> in) const final {
    return kernel(table, {in.begin(), in.end()});
  }

 private:
  virtual kernels::Kernel kernel(const kernels::Table& table,
                                 std::vector<TensorSpec> src) const = 0;
};

}  // namespace lockstep::ops
