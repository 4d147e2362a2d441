// Reductions along axes, as ops whose gradients are ops.
#pragma once

#include <optional>
#include <vector>

#include "lockstep/engine/graph/op.h"
#include "lockstep/engine/kernels/reductions/reduce.h"

namespace lockstep::ops {

// Reduces the axes (negative: from the last; any order). `keep`: they stay, with size 1. `mean`:
// sums are divided by their number of elements.
OpPtr make_reduce(kernels::Reduction kind, std::vector<int> axes, bool keep, bool mean = false);

// The products of all other elements along the last axis: the derivative of their product.
OpPtr make_products_of_others();

// How an op of make_reduce() reduces a value of `src`; nothing for other ops.
std::optional<kernels::ReduceProblem> reduction_of(const Op& op, const TensorSpec& src);

// The sum over the axes along which a value of `shape` was broadcast to x, in that shape.
Value sum_to(const Value& x, const Shape& shape);

}  // namespace lockstep::ops
