// Loops of single opcodes over a run of elements, for every instruction set.
#pragma once

#include <array>
#include <cstdint>

#include "lockstep/engine/kernels/elementwise/expression.h"

namespace lockstep::kernels::cpu {

// y[i] = opcode(a[i], b[i], c[i]) for i below n. y may be one of the arguments. Arguments that the
// opcode does not have are not read.
using ExpressionLoop = void (*)(const float* a, const float* b, const float* c, float* y,
                                int64_t n);

// Loops by a mask of the arguments that are one number, *a for example: bit 0 for a, 1 for b, 2 for
// c. Null where all arguments are, and for Opcode::constant.
using LoopsOfOpcode = std::array<ExpressionLoop, 7>;
using ExpressionLoops = std::array<LoopsOfOpcode, kOpcodes>;

// Those for this processor.
const ExpressionLoops& expression_loops();

}  // namespace lockstep::kernels::cpu
