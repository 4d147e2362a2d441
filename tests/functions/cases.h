// Elementary functions of one float and activations, with what they are in double by the C library
// and with bounds of their errors.
#pragma once

#include <algorithm>
#include <cmath>

#include "lockstep/engine/kernels/elementwise/activation_functions.h"

namespace lockstep::kernels {

// |found - exact| in units in the last place of the float that is nearest to `exact`.
inline double ulps(float found, double exact) {
  const auto nearest = static_cast<float>(exact);
  if (std::isnan(exact) != std::isnan(found)) return INFINITY;
  if (std::isnan(exact)) return 0;
  if (std::isinf(nearest) || std::isinf(found)) return nearest == found ? 0 : INFINITY;
  int exponent;
  std::frexp(exact, &exponent);
  exponent = exact == 0 ? -125 : std::max(exponent, -125);
  return std::fabs(double{found} - exact) / std::ldexp(1.0, exponent - 24);
}

inline double exact_share(double x) { return 0.5 * std::erfc(x * -0.70710678118654752440); }
inline double exact_sigmoid(double x) {
  return x > 0 ? 1 / (1 + std::exp(-x)) : std::exp(x) / (1 + std::exp(x));
}
inline double exact_softplus(double x) {
  return (x > 0 ? x : 0) + std::log1p(std::exp(-std::fabs(x)));
}
inline double exact_sigmoid_slope(double x) { return exact_sigmoid(x) * exact_sigmoid(-x); }
// x times what goes to 0 faster than x to infinity.
inline double times(double x, double factor) { return factor == 0 ? 0 : x * factor; }

inline double exact_gelu_by_tanh(double x) {
  const double y = 1.5957691216057307117 * (x + 0.044715 * x * x * x);
  return times(x, std::isinf(x) ? x > 0 : exact_sigmoid(y));
}

// CASE(name, function of the float `at`, the same of the double `x`, most units in the last place).
// The bounds are the errors over all floats, rounded up.
#define LOCKSTEP_FUNCTION_CASES(CASE)                                        \
  CASE(exp, exponential(at), std::exp(x), 0.8)                               \
  CASE(exp2, exponential_of_2(at), std::exp2(x), 0.8)                        \
  CASE(expm1, exponential_minus_1(at), std::expm1(x), 0.88)                  \
  CASE(log, logarithm(at), std::log(x), 0.94)                                \
  CASE(log1p, logarithm_of_1_plus(at), std::log1p(x), 0.94)                  \
  CASE(tanh, hyperbolic_tangent(at), std::tanh(x), 0.77)                     \
  CASE(erf, error_function(at), std::erf(x), 0.93)                           \
  CASE(erfc, complementary_error(at), std::erfc(x), 0.502)                   \
  CASE(sin, sine(at), std::sin(x), 0.501)                                    \
  CASE(cos, cosine(at), std::cos(x), 0.501)                                  \
  CASE(tan, tangent(at), std::tan(x), 0.501)                                 \
  CASE(log2, logarithm_of_base_2(at), std::log2(x), 0.501)                   \
  CASE(sigmoid, logistic(at), exact_sigmoid(x), 0.78)                        \
  CASE(softplus, lockstep::kernels::softplus(at), exact_softplus(x), 0.98)   \
  CASE(gelu, Gelu{}.value(at), times(x, exact_share(x)), 0.998)              \
  CASE(gelu_by_tanh, GeluTanh{}.value(at), exact_gelu_by_tanh(x), 0.8)       \
  CASE(swish, Swish{}.value(at), times(x, exact_sigmoid(x)), 0.8)            \
  CASE(elu, Elu{1}.value(at), x > 0 ? x : std::expm1(x), 0.88)               \
  CASE(slope_of_tanh, Tanh{}.slope(at), 4 * exact_sigmoid_slope(2 * x), 0.8) \
  CASE(slope_of_sigmoid, Sigmoid{}.slope(at), exact_sigmoid_slope(x), 0.8)

// The same without a bound in these units, because these cross 0 or have no function in the C
// library.
#define LOCKSTEP_MORE_FUNCTION_CASES(CASE)          \
  CASE(slope_of_gelu, Gelu{}.slope(at))             \
  CASE(slope_of_gelu_by_tanh, GeluTanh{}.slope(at)) \
  CASE(slope_of_swish, Swish{}.slope(at))           \
  CASE(power_1_7, power(magnitude(at), 1.7f))       \
  CASE(power_to_at, power(1.7f, at))

}  // namespace lockstep::kernels
