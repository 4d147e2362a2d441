// Loops of opcodes over a run of elements, for every instruction set.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>

#include "lockstep/engine/kernels/elementwise/expression.h"

namespace lockstep::kernels::cpu {

// The most opcodes and arguments of one loop.
inline constexpr int kMostInChain = 3, kMostArguments = 4;

// Opcodes that one loop computes, because reading and writing tiles takes longer than they do: each
// opcode after the first has the result before it as its first argument. Each is rounded as alone.
// With a chain all its beginnings are there; (multiply, add) is Opcode::multiply_add.
// LOCKSTEP_CHAINS(X) applies X(opcodes...) to each.
// clang-format off
#define LOCKSTEP_CHAINS(X)                                                                         \
  X(subtract, multiply) X(subtract, multiply, add) X(subtract, square) X(subtract, square, multiply) \
  X(add, multiply) X(add, add) X(add, subtract) X(add, maximum) X(add, maximum, add)               \
  X(multiply, multiply) X(multiply, subtract) X(multiply, add, maximum)                            \
  X(maximum, add) X(maximum, multiply) X(maximum, minimum)                                         \
  X(square, multiply) X(square, add) X(less, multiply) X(less_equal, multiply)
// clang-format on

struct OpcodeChain {
  std::array<Opcode, kMostInChain> opcodes = {};
  int length = 0, arguments = 0;

  constexpr OpcodeChain() = default;
  constexpr OpcodeChain(std::initializer_list<Opcode> all) {
    for (const Opcode opcode : all) {
      arguments += arity_of(opcode) - (length > 0 ? 1 : 0);
      opcodes[static_cast<size_t>(length++)] = opcode;
    }
  }
  // Without opcodes if that is too long.
  constexpr OpcodeChain then(const OpcodeChain& next) const {
    OpcodeChain both;
    if (length + next.length > kMostInChain) return both;
    both = *this;
    for (int i = 0; i < next.length; ++i) {
      both.opcodes[static_cast<size_t>(both.length++)] = next.opcodes[static_cast<size_t>(i)];
    }
    both.arguments += next.arguments - 1;
    return both;
  }
  friend constexpr bool operator==(const OpcodeChain&, const OpcodeChain&) = default;
};

// The chains have numbers: first all opcodes alone, then the list.
inline constexpr auto kChains = [] {
  using enum Opcode;
#define LOCKSTEP_CHAIN(...) +1
  std::array<OpcodeChain, static_cast<size_t>(kOpcodes LOCKSTEP_CHAINS(LOCKSTEP_CHAIN))> chains;
#undef LOCKSTEP_CHAIN
  size_t i = 0;
  for (; i < kOpcodes; ++i) chains[i] = {static_cast<Opcode>(i)};
#define LOCKSTEP_CHAIN(...) chains[i++] = {__VA_ARGS__};
  LOCKSTEP_CHAINS(LOCKSTEP_CHAIN)
#undef LOCKSTEP_CHAIN
  return chains;
}();

// y[i] = chain(from[0][i], from[1][i], ...) for i below n. y may be one of the arguments.
using ExpressionLoop = void (*)(const float* const* from, float* y, int64_t n);

// Loops by a mask of the arguments that are one number, *from[0] for example for bit 0. Null where
// all arguments are, and for Opcode::constant.
using LoopsOfChain = std::array<ExpressionLoop, (1 << kMostArguments) - 1>;
using ExpressionLoops = std::array<LoopsOfChain, kChains.size()>;

// Those for this processor.
const ExpressionLoops& expression_loops();

}  // namespace lockstep::kernels::cpu
