// The axes of an expression, for its kernels: broadcasting as strides, in as few axes as possible.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/engine/kernels/elementwise/expression.h"

namespace lockstep::kernels {

// dims[axis] elements in each axis of the result, outermost first. strides[input][axis]: elements
// between neighbors of an input; 0 where it is broadcast. The result and inputs that are neither
// broadcast nor strided lie row-major. No axis has one element, and neighboring axes that all
// inputs cross in equal steps are one.
struct BroadcastAxes {
  std::vector<int64_t> dims;
  std::vector<std::vector<int64_t>> strides;
  std::vector<int64_t> offsets;  // by input: the number of its first element
};

// The first and the last of the elements that a strided input reads. dst has elements.
struct StridedRange {
  int64_t first, last;
};
inline StridedRange strided_range(const InputStrides& input, const Shape& dst) {
  StridedRange range{input.offset, input.offset};
  for (int axis = 0; axis < dst.rank(); ++axis) {
    const int64_t stride = input.strides[static_cast<size_t>(axis)];
    (stride < 0 ? range.first : range.last) += (dst[axis] - 1) * stride;
  }
  return range;
}

// Whether row i of dst reads row i of a strided input of shape `src` alone.
inline bool keeps_rows(const InputStrides& input, const Shape& src, const Shape& dst) {
  if (src.rank() == 0 || dst.rank() == 0 || src[0] != dst[0]) return false;
  if (dst.elements() == 0) return true;
  const int64_t row = src.elements() / src[0];
  const StridedRange range = strided_range(input, dst);
  return input.strides[0] == row && range.first >= 0 && range.last - (dst[0] - 1) * row < row;
}

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
    if (p.is_strided(i)) {
      const InputStrides& strided = p.strided[i];
      fits = p.src[i].dtype == DType::f32 && row_major &&
             strided.strides.size() == static_cast<size_t>(p.dst.rank());
      if (fits && p.dst.elements() > 0) {
        const StridedRange range = strided_range(strided, p.dst);
        fits = range.first >= 0 && range.last < shape.elements();
      }
      if (fits) continue;
      refuse("input " + std::to_string(i) + " of " + p.src[i].to_string() +
             " has no elements for all positions of " + p.dst_spec().to_string());
    }
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
  axes.offsets.resize(inputs);
  for (size_t i = 0; i < inputs; ++i) {
    if (p.is_strided(i)) axes.offsets[i] = p.strided[i].offset;
  }
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
      if (p.is_strided(i)) {
        strides[i] = p.strided[i].strides[static_cast<size_t>(p.dst.rank() - axis)];
        continue;
      }
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
