// Elementwise expressions of any number of inputs, with broadcasting. All elementwise ops can be
// expressed by them, and so can their derivatives of any order.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "lockstep/engine/kernels/interface/kernel.h"

namespace lockstep::kernels {

// LOCKSTEP_OPCODES(X) applies X(name, number of arguments) to each opcode, in the order of their
// numbers. Programs may be stored, so new opcodes come last.
// clang-format off
#define LOCKSTEP_OPCODES(X)                                                                        \
  /* NaN stays NaN, and so it does in all others of one argument; sign(+-0) = +-0. */              \
  X(negate, 1) X(abs, 1) X(sign, 1) X(reciprocal, 1) X(square, 1) X(sqrt, 1) X(rsqrt, 1)           \
  X(exp, 1) X(expm1, 1) X(log, 1) X(log1p, 1) X(sin, 1) X(cos, 1) X(tanh, 1) X(erf, 1) X(erfc, 1)  \
  /* 1 / (1 + e^-a), log(1 + e^a); `round` rounds halves to even. */                               \
  X(sigmoid, 1) X(softplus, 1) X(floor, 1) X(ceil, 1) X(round, 1)                                  \
  /* maximum and minimum are NaN if one argument is; of equal arguments they give the second. */   \
  X(add, 2) X(subtract, 2) X(multiply, 2) X(divide, 2) X(pow, 2) X(maximum, 2) X(minimum, 2)       \
  /* 1 or 0; 0 if an argument is NaN. */                                                           \
  X(equal, 2) X(less, 2) X(less_equal, 2)                                                          \
  /* a != 0 ? b : c. What is not taken never reaches the result, not even NaN. */                  \
  X(where, 3)                                                                                      \
  /* a * b + c with two roundings: the bits of multiply, then add. */                              \
  X(multiply_add, 3)                                                                               \
  /* Instruction::value. */                                                                        \
  X(constant, 0)                                                                                   \
  X(log2, 1) X(tan, 1)
// clang-format on

#define LOCKSTEP_OPCODE(name, arity) name,
enum class Opcode : uint8_t { LOCKSTEP_OPCODES(LOCKSTEP_OPCODE) };
#undef LOCKSTEP_OPCODE

#define LOCKSTEP_OPCODE(name, arity) +1
inline constexpr int kOpcodes = LOCKSTEP_OPCODES(LOCKSTEP_OPCODE);
#undef LOCKSTEP_OPCODE

// The number of arguments.
constexpr int arity_of(Opcode opcode) {
#define LOCKSTEP_OPCODE(name, arity) arity,
  constexpr std::array<int, kOpcodes> arities{LOCKSTEP_OPCODES(LOCKSTEP_OPCODE)};
#undef LOCKSTEP_OPCODE
  return arities[static_cast<size_t>(opcode)];
}

// "add" for Opcode::add.
constexpr std::string_view name_of(Opcode opcode) {
#define LOCKSTEP_OPCODE(name, arity) #name,
  constexpr std::array<std::string_view, kOpcodes> names{LOCKSTEP_OPCODES(LOCKSTEP_OPCODE)};
#undef LOCKSTEP_OPCODE
  return names[static_cast<size_t>(opcode)];
}

// Whether the function is not one of IEEE 754's operations. Its result is then less than 1 unit in
// the last place from the exact value, but not always the nearest float (functions.h).
constexpr bool is_elementary(Opcode opcode) {
  using enum Opcode;
  switch (opcode) {
    case exp:
    case expm1:
    case log:
    case log1p:
    case sin:
    case cos:
    case tanh:
    case erf:
    case erfc:
    case sigmoid:
    case softplus:
    case pow:
    case log2:
    case tan:
      return true;
    default:
      return false;
  }
}

// Instruction i of a program computes operand number (number of inputs) + i. Operands below that
// are the inputs. a, b and c are the numbers of earlier operands; as many count as the opcode has
// arguments.
struct Instruction {
  Opcode opcode;
  uint8_t a = 0, b = 0, c = 0;
  float value = 0;
};

// The most instructions and inputs that every back end accepts.
inline constexpr int kMostInstructions = 96, kMostExpressionInputs = 16;

// Where the elements of an input are: that for element [i_0, i_1, ...] of dst is number offset +
// sum of i_k * strides[k] of its row-major elements. No strides: it is broadcast by its shape.
struct InputStrides {
  int64_t offset = 0;
  std::vector<int64_t> strides;  // one for each axis of dst; may be 0 or negative
};

// dst = the last instruction's result, for each element. Inputs are f32, row-major and broadcast to
// dst by NumPy's rules: axes are aligned at the last one, axes of 1 and missing axes repeat; or
// they are read by strides. Or all have one layout and dst's shape; dst then has that layout, too,
// and the program is applied to all of its memory. Each opcode is rounded to f32, so the bits do
// not depend on how programs are cut. Kernels have a forward pass alone, because derivatives are
// other expressions.
struct ExpressionProblem {
  std::vector<TensorSpec> src;
  Shape dst;
  std::vector<Instruction> program;
  std::vector<InputStrides> strided = {};  // by input, or empty

  bool is_strided(size_t input) const {
    return input < strided.size() && !strided[input].strides.empty();
  }
  TensorSpec dst_spec() const {
    return {dst, DType::f32, src.empty() ? nullptr : src.front().layout};
  }
  // Of dst in memory.
  int64_t elements() const { return static_cast<int64_t>(dst_spec().bytes() / sizeof(float)); }
};

}  // namespace lockstep::kernels
