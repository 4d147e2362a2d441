// Elementwise functions with broadcasting, as ops whose gradients are ops.
#pragma once

#include "lockstep/engine/graph/op.h"
#include "lockstep/engine/kernels/elementwise/expression.h"

namespace lockstep::ops {

// One opcode, applied to as many inputs as it has arguments; not Opcode::constant.
OpPtr make_pointwise(kernels::Opcode opcode);

// The number `value` as a scalar, on the device of the op's input, whose elements do not matter.
OpPtr make_scalar_like(float value);

// The shape to which shapes are broadcast. Throws InvalidArgument, naming the op, if they cannot
// be.
Shape broadcast_shape(std::string_view op, std::span<const Shape> shapes);

}  // namespace lockstep::ops
