// Comparisons, logic and limits, made of the functions of op_list.h.
#include <limits>

#include "lockstep/base/error.h"
#include "lockstep/engine/ops/applied.h"
#include "lockstep/engine/ops/ops.h"

namespace lockstep::ops {

template <Operand T>
T clip(const T& x, double low, double high) {
  if (!(low <= high)) {
    throw InvalidArgument("[clip] expected limits in order, received " + std::to_string(low) +
                          " and " + std::to_string(high));
  }
  return named("clip", [&] {
    const T above = where(less(x, low), low, x);
    return where(less(high, above), high, above);
  });
}
LOCKSTEP_INSTANTIATE_1(clip, double, double)

template <Operand T>
T isnan(const T& x) {
  return named("isnan", [&] { return not_equal(x, x); });
}
LOCKSTEP_INSTANTIATE_1(isnan)

template <Operand T>
T isfinite(const T& x) {
  return named("isfinite", [&] { return less(abs(x), std::numeric_limits<double>::infinity()); });
}
LOCKSTEP_INSTANTIATE_1(isfinite)

template <Operand T>
T logical_not(const T& x) {
  return named("logical_not", [&] { return equal(x, 0); });
}
LOCKSTEP_INSTANTIATE_1(logical_not)

#define LOCKSTEP_DEFINE(T, name, B, formula)      \
  T name(const T& a, B b) {                       \
    return named(#name, [&] { return formula; }); \
  }
#define LOCKSTEP_DEFINE_FOR(T)                                                 \
  LOCKSTEP_DEFINE(T, greater, const T&, less(b, a))                            \
  LOCKSTEP_DEFINE(T, greater, double, less(b, a))                              \
  LOCKSTEP_DEFINE(T, greater_equal, const T&, less_equal(b, a))                \
  LOCKSTEP_DEFINE(T, greater_equal, double, less_equal(b, a))                  \
  LOCKSTEP_DEFINE(T, not_equal, const T&, 1 - equal(a, b))                     \
  LOCKSTEP_DEFINE(T, not_equal, double, 1 - equal(a, b))                       \
  LOCKSTEP_DEFINE(T, logical_and, const T&, not_equal(a, 0) * not_equal(b, 0)) \
  LOCKSTEP_DEFINE(T, logical_or, const T&, 1 - equal(a, 0) * equal(b, 0))      \
  LOCKSTEP_DEFINE(T, logical_xor, const T&, not_equal(equal(a, 0), equal(b, 0)))
LOCKSTEP_DEFINE_FOR(Tensor)
LOCKSTEP_DEFINE_FOR(Value)
#undef LOCKSTEP_DEFINE_FOR
#undef LOCKSTEP_DEFINE

}  // namespace lockstep::ops
