// Expressions for values of given specs.
#pragma once

#include <span>
#include <vector>

#include "lockstep/engine/graph/op.h"
#include "lockstep/engine/kernels/elementwise/expression.h"

namespace lockstep::ops {

// The kernel of a program whose operands are `in`, broadcast to dst. It keeps the layout of the
// inputs if all have dst's shape and what lies between elements, zeros, stays zero. `strided`: as
// ExpressionProblem. rows_apart: no input is broadcast, except scalars, and each row reads its own
// row of strided inputs.
kernels::Kernel compile_expression(const kernels::Table& table, std::span<const TensorSpec> in,
                                   const Shape& dst, std::vector<kernels::Instruction> program,
                                   std::vector<kernels::InputStrides> strided = {});

// Whether the program gives 0 where all of its inputs are 0.
bool keeps_zeros(std::span<const kernels::Instruction> program, size_t inputs);

}  // namespace lockstep::ops
