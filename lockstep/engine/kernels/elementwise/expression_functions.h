// The formulas of the opcodes of elementwise/expression.h, shared by CPU and GPU. They consist
// of IEEE 754's operations, so all devices give the same bits.
#pragma once

#include <cmath>

#include "lockstep/engine/kernels/elementwise/expression.h"
#include "lockstep/engine/kernels/elementwise/functions.h"

namespace lockstep::kernels::opcodes {

inline namespace LOCKSTEP_FUNCTIONS_OF_PROCESSOR {

// Each opcode is a struct with of(), which takes its arguments.
#define LOCKSTEP_FORMULA_1(name, formula)                                              \
  struct name {                                                                        \
    LOCKSTEP_FUNCTION static float of(float a) { return static_cast<float>(formula); } \
  };
#define LOCKSTEP_FORMULA_2(name, formula)                                                       \
  struct name {                                                                                 \
    LOCKSTEP_FUNCTION static float of(float a, float b) { return static_cast<float>(formula); } \
  };

LOCKSTEP_FORMULA_1(negate, -a)
LOCKSTEP_FORMULA_1(abs, std::fabs(a))
LOCKSTEP_FORMULA_1(sign, a > 0 ? 1.0f : (a < 0 ? -1.0f : a))
LOCKSTEP_FORMULA_1(reciprocal, 1 / a)
LOCKSTEP_FORMULA_1(square, a* a)
LOCKSTEP_FORMULA_1(sqrt, std::sqrt(a))
LOCKSTEP_FORMULA_1(rsqrt, 1 / std::sqrt(a))
LOCKSTEP_FORMULA_1(exp, exponential(a))
LOCKSTEP_FORMULA_1(expm1, exponential_minus_1(a))
LOCKSTEP_FORMULA_1(log, logarithm(a))
LOCKSTEP_FORMULA_1(log1p, logarithm_of_1_plus(a))
LOCKSTEP_FORMULA_1(sin, sine(a))
LOCKSTEP_FORMULA_1(cos, cosine(a))
LOCKSTEP_FORMULA_1(log2, logarithm_of_base_2(a))
LOCKSTEP_FORMULA_1(tan, tangent(a))
LOCKSTEP_FORMULA_1(tanh, hyperbolic_tangent(a))
LOCKSTEP_FORMULA_1(erf, error_function(a))
LOCKSTEP_FORMULA_1(erfc, complementary_error(a))
LOCKSTEP_FORMULA_1(sigmoid, logistic(a))
LOCKSTEP_FORMULA_1(softplus, kernels::softplus(a))
LOCKSTEP_FORMULA_1(floor, std::floor(a))
LOCKSTEP_FORMULA_1(ceil, std::ceil(a))
LOCKSTEP_FORMULA_1(round, std::rint(a))
LOCKSTEP_FORMULA_2(add, a + b)
LOCKSTEP_FORMULA_2(subtract, a - b)
LOCKSTEP_FORMULA_2(multiply, a* b)
LOCKSTEP_FORMULA_2(divide, a / b)
LOCKSTEP_FORMULA_2(pow, power(a, b))
LOCKSTEP_FORMULA_2(maximum, (a > b) | (a != a) ? a : b)
LOCKSTEP_FORMULA_2(minimum, (a < b) | (a != a) ? a : b)
LOCKSTEP_FORMULA_2(equal, a == b ? 1.0f : 0.0f)
LOCKSTEP_FORMULA_2(less, a < b ? 1.0f : 0.0f)
LOCKSTEP_FORMULA_2(less_equal, a <= b ? 1.0f : 0.0f)

struct constant {};
struct where {
  LOCKSTEP_FUNCTION static float of(float a, float b, float c) { return a != 0 ? b : c; }
};
struct multiply_add {
  LOCKSTEP_FUNCTION static float of(float a, float b, float c) { return a * b + c; }
};

#undef LOCKSTEP_FORMULA_1
#undef LOCKSTEP_FORMULA_2

}  // namespace LOCKSTEP_FUNCTIONS_OF_PROCESSOR
}  // namespace lockstep::kernels::opcodes
