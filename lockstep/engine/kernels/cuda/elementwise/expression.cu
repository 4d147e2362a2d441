#include <algorithm>
#include <string>

#include "lockstep/engine/kernels/cuda/elementwise/expression.h"
#include "lockstep/engine/kernels/cuda/launch.h"
#include "lockstep/engine/kernels/elementwise/broadcast_axes.h"
#include "lockstep/engine/kernels/elementwise/expression.h"
#include "lockstep/engine/kernels/elementwise/expression_functions.h"

namespace lockstep::kernels::cuda {
namespace {

// Arguments of a launch have 4 KiB.
constexpr int kMostAxes = 8;

template <class F, int arity>
__device__ float result_of(const Instruction& at, const float* operands) {
  if constexpr (arity == 0) {
    return at.value;
  } else if constexpr (arity == 1) {
    return F::of(operands[at.a]);
  } else if constexpr (arity == 2) {
    return F::of(operands[at.a], operands[at.b]);
  } else {
    return F::of(operands[at.a], operands[at.b], operands[at.c]);
  }
}

// Interprets the program for each element.
struct Interpreter {
  int inputs, instructions, axes;
  const float* src[kMostExpressionInputs];
  float* dst;
  int64_t dims[kMostAxes];
  int64_t strides[kMostExpressionInputs][kMostAxes];
  Instruction program[kMostInstructions];

  __device__ void operator()(int64_t i) const {
    float operands[kMostExpressionInputs + kMostInstructions];
    int64_t index[kMostAxes];
    int64_t rest = i;
    for (int axis = axes - 1; axis > 0; --axis) {
      const Division where = divide(rest, dims[axis]);
      index[axis] = where.remainder;
      rest = where.quotient;
    }
    if (axes > 0) index[0] = rest;
    for (int k = 0; k < inputs; ++k) {
      int64_t offset = 0;
      for (int axis = 0; axis < axes; ++axis) offset += index[axis] * strides[k][axis];
      operands[k] = src[k][offset];
    }
    for (int k = 0; k < instructions; ++k) operands[inputs + k] = next(program[k], operands);
    dst[i] = operands[inputs + instructions - 1];
  }

  __device__ static float next(const Instruction& at, const float* operands) {
    switch (at.opcode) {
#define LOCKSTEP_OPCODE(name, arity) \
  case Opcode::name:                 \
    return result_of<opcodes::name, arity>(at, operands);
      LOCKSTEP_OPCODES(LOCKSTEP_OPCODE)
#undef LOCKSTEP_OPCODE
    }
    return 0;
  }
};
static_assert(sizeof(Interpreter) < 4000);

}  // namespace

std::function<void(const Bound&, float*)> expression_launch(const ExpressionProblem& p) {
  check(p);
  const BroadcastAxes axes = broadcast_axes(p);
  if (axes.dims.size() > kMostAxes) {
    throw Unsupported("[cuda] expression: " + std::to_string(axes.dims.size()) +
                      " axes with different broadcasting, of " + p.dst.to_string() +
                      ", are more than " + std::to_string(kMostAxes));
  }
  Interpreter interpreter{};
  interpreter.inputs = static_cast<int>(p.src.size());
  interpreter.instructions = static_cast<int>(p.program.size());
  interpreter.axes = static_cast<int>(axes.dims.size());
  std::copy(axes.dims.begin(), axes.dims.end(), interpreter.dims);
  for (size_t k = 0; k < p.src.size(); ++k) {
    std::copy(axes.strides[k].begin(), axes.strides[k].end(), interpreter.strides[k]);
  }
  std::copy(p.program.begin(), p.program.end(), interpreter.program);
  return [interpreter, offsets = axes.offsets, count = p.elements()](const Bound& b, float* dst) {
    Interpreter bound = interpreter;
    for (int k = 0; k < bound.inputs; ++k) {
      bound.src[k] = b.in(k) + offsets[static_cast<size_t>(k)];
    }
    bound.dst = dst;
    launch_each("expression", count, b.stream, bound);
  };
}

Kernel expression(const ExpressionProblem& p) {
  Kernel kernel;
  std::vector<Operand> reads;
  for (size_t k = 0; k < p.src.size(); ++k) {
    reads.push_back(input(static_cast<int>(k), p.src[k]));
  }
  kernel.forward =
      own_pass(std::move(reads), {output(0, p.dst_spec())},
               [launch = expression_launch(p)](const Bound& b) { launch(b, b.out(0)); });
  for (size_t k = 0; k < p.src.size(); ++k) {
    if (p.src[k].shape == p.dst && !p.is_strided(k))
      kernel.forward.in_place.push_back(static_cast<int>(k));
  }
  return kernel;
}

}  // namespace lockstep::kernels::cuda
