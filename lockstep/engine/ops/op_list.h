// The list of elementwise functions: name, and one line of documentation. From it follow the
// functions that users call (ops.h), their page in the documentation and the tests of derivatives.
#pragma once

// Functions of one argument. NaN gives NaN.
// clang-format off
#define LOCKSTEP_UNARY_OPS(OP)                                                                     \
  OP(negate, "-x")                                                                                 \
  OP(abs, "|x|; the derivative at 0 is 0")                                                         \
  OP(sign, "-1, 0 or 1; the derivative is 0")                                                      \
  OP(reciprocal, "1 / x")                                                                          \
  OP(square, "x^2")                                                                                \
  OP(sqrt, "the square root; NaN below 0")                                                         \
  OP(rsqrt, "1 / sqrt(x)")                                                                         \
  OP(exp, "e^x")                                                                                   \
  OP(expm1, "e^x - 1, accurate near 0")                                                            \
  OP(log, "the natural logarithm; NaN below 0")                                                    \
  OP(log2, "the logarithm of base 2; NaN below 0")                                                 \
  OP(log1p, "log(1 + x), accurate near 0")                                                         \
  OP(sin, "the sine of x radians")                                                                 \
  OP(cos, "the cosine of x radians")                                                               \
  OP(tan, "the tangent of x radians")                                                              \
  OP(erf, "the error function")                                                                    \
  OP(erfc, "1 - erf(x), accurate for large x")                                                     \
  OP(floor, "the largest whole number that is at most x; the derivative is 0")                     \
  OP(ceil, "the smallest whole number that is at least x; the derivative is 0")                    \
  OP(round, "the nearest whole number, halves to even; the derivative is 0")

// Functions of two arguments, whose shapes are broadcast by NumPy's rules.
#define LOCKSTEP_BINARY_OPS(OP)                                                                    \
  OP(add, "a + b")                                                                                 \
  OP(subtract, "a - b")                                                                            \
  OP(multiply, "a * b")                                                                            \
  OP(divide, "a / b")                                                                              \
  OP(pow, "a to the power of b, as IEEE 754's pow")                                                \
  OP(maximum, "the larger; NaN if one is NaN; equal arguments share the derivative")               \
  OP(minimum, "the smaller; NaN if one is NaN; equal arguments share the derivative")              \
  OP(equal, "1 where a = b, otherwise 0; the derivative is 0")                                     \
  OP(less, "1 where a < b, otherwise 0; the derivative is 0")                                      \
  OP(less_equal, "1 where a <= b, otherwise 0; the derivative is 0")
// clang-format on
