// Ops that move elements without changing them: transposes, slices, expansions.
#pragma once

#include <string_view>
#include <vector>

#include "lockstep/engine/graph/op.h"
#include "lockstep/engine/tensor/tensor.h"

namespace lockstep::ops {

// The axes as numbers from 0, sorted. Throws InvalidArgument, naming the op, for one that x does
// not have and for one that comes twice.
std::vector<int> resolved_axes(std::string_view op, std::span<const int> axes, const Shape& x);
// The same for one axis.
int resolved_axis(std::string_view op, int axis, const Shape& x);

// The same elements in row-major order, with another shape; the first axis is not special.
Value reshaped(const Value& x, const Shape& shape);
Tensor reshaped(const Tensor& x, const Shape& shape);
// x as a constant: no derivative flows back.
Value detached(const Value& x);
Tensor detached(const Tensor& x);
// A vector of channels in a shape that broadcasts to x, n x c x space.
Value by_channel(const Value& vector, const Shape& x);
Tensor by_channel(const Tensor& vector, const Shape& x);

}  // namespace lockstep::ops
