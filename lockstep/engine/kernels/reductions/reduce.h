// Reductions over any axes.
#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/engine/kernels/elementwise/expression.h"
#include "lockstep/engine/kernels/interface/kernel.h"

namespace lockstep::kernels {

// NaN wins in maximum and minimum. Of no elements a sum is 0 and a product 1; maximum and minimum
// need at least one.
enum class Reduction : uint8_t { sum, product, maximum, minimum };

// Reduces the axes in `axes` (sorted, distinct; may be all or none). dst: src's shape without them.
// f32, row-major. Sums and products are computed in double and rounded once, in an order that
// depends on the shape and the axes alone (reduce_axes.h). `factor` multiplies sums before they are
// rounded: 1 / count gives means. The kernel has a forward pass alone.
struct ReduceProblem {
  TensorSpec src;
  std::vector<int> axes;
  Reduction kind = Reduction::sum;
  double factor = 1;
  // With a program: src is not an input but what the program computes of its inputs, which are
  // row-major. The bits are those of the two kernels.
  ExpressionProblem of = {};
};

}  // namespace lockstep::kernels
