// The axes of an expression, for its kernels: broadcasting as strides, in as few axes as possible.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/engine/kernels/elementwise/expression.h"

namespace lockstep::kernels {

// dims[axis] elements in each axis of the result, outermost first. strides[input][axis]: elements
// between neighbors of an input; 0 where it is broadcast. The result and inputs that are not
// broadcast lie row-major. No axis has one element, and neighboring axes that all inputs cross in
// equal steps are one.
struct BroadcastAxes {
  std::vector<int64_t> dims;
  std::vector<std::vector<int64_t>> strides;
};

// Throws InvalidArgument if the inputs cannot be broadcast to dst, or the program refers to
// operands that are not computed before.
inline void check(const ExpressionProblem& p) {
  const auto refuse = [](const std::string& what) {
    throw InvalidArgument("[expression] " + what);
  };
  const size_t inputs = p.src.size();
  if (p.program.empty()) refuse("the program is empty");
  if (inputs > kMostExpressionInputs || p.program.size() > kMostInstructions) {
    refuse(std::to_string(p.program.size()) + " instructions on " + std::to_string(inputs) +
           " inputs; at most " + std::to_string(kMostInstructions) + " on " +
           std::to_string(kMostExpressionInputs) + ": cut the program");
  }
  for (size_t i = 0; i < p.program.size(); ++i) {
    const Instruction& at = p.program[i];
    if (static_cast<int>(at.opcode) >= kOpcodes) {
      refuse("instruction " + std::to_string(i) + " has an unknown opcode");
    }
    const uint8_t operands[] = {at.a, at.b, at.c};
    for (int k = 0; k < arity_of(at.opcode); ++k) {
      if (operands[k] < inputs + i) continue;
      refuse("instruction " + std::to_string(i) + ", " + std::string(name_of(at.opcode)) +
             ", refers to operand " + std::to_string(operands[k]) + ", which is not computed yet");
    }
  }
  for (size_t i = 0; i < inputs; ++i) {
    const Shape& shape = p.src[i].shape;
    bool fits = p.src[i].dtype == DType::f32 && shape.rank() <= p.dst.rank();
    for (int axis = 1; fits && axis <= shape.rank(); ++axis) {
      fits = shape[-axis] == 1 || shape[-axis] == p.dst[-axis];
    }
    const bool row_major = p.src[i].row_major() && p.src[0].row_major();
    if (!fits || !(row_major || (p.src[i] == p.src[0] && shape == p.dst))) {
      refuse("input " + std::to_string(i) + " of " + p.src[i].to_string() +
             " cannot be broadcast to " + p.dst_spec().to_string());
    }
  }
}

// `p` has passed check().
inline BroadcastAxes broadcast_axes(const ExpressionProblem& p) {
  const size_t inputs = p.src.size();
  BroadcastAxes axes;
  if (!p.dst_spec().row_major()) {
    axes.dims = {p.elements()};
    axes.strides.assign(inputs, {1});
    return axes;
  }
  axes.strides.resize(inputs);
  std::vector<int64_t> elements(inputs, 1);  // of the axes up to this one, from the last
  for (int axis = 1; axis <= p.dst.rank(); ++axis) {
    const int64_t dim = p.dst[-axis];
    if (dim == 1) continue;
    std::vector<int64_t> strides(inputs);
    for (size_t i = 0; i < inputs; ++i) {
      const Shape& shape = p.src[i].shape;
      if (axis > shape.rank() || shape[-axis] == 1) continue;
      strides[i] = elements[i];
      elements[i] *= dim;
    }
    // Here the axes are still in the reverse order.
    bool joins = !axes.dims.empty();
    for (size_t i = 0; joins && i < inputs; ++i) {
      joins = strides[i] == axes.strides[i].back() * axes.dims.back();
    }
    if (joins) {
      axes.dims.back() *= dim;
      continue;
    }
    axes.dims.push_back(dim);
    for (size_t i = 0; i < inputs; ++i) axes.strides[i].push_back(strides[i]);
  }
  std::vector<int64_t>(axes.dims.rbegin(), axes.dims.rend()).swap(axes.dims);
  for (auto& strides : axes.strides) {
    std::vector<int64_t>(strides.rbegin(), strides.rend()).swap(strides);
  }
  return axes;
}

}  // namespace lockstep::kernels
