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
  const T above = where(less(x, low), low, x);
  return where(less(high, above), high, above);
}
LOCKSTEP_INSTANTIATE_1(clip, double, double)

template <Operand T>
T is_nan(const T& x) {
  return not_equal(x, x);
}
LOCKSTEP_INSTANTIATE_1(is_nan)

template <Operand T>
T is_finite(const T& x) {
  return less(abs(x), std::numeric_limits<double>::infinity());
}
LOCKSTEP_INSTANTIATE_1(is_finite)

template <Operand T>
T logical_not(const T& x) {
  return equal(x, 0);
}
LOCKSTEP_INSTANTIATE_1(logical_not)

#define LOCKSTEP_DEFINE_FOR(T)                                                        \
  T greater(const T& a, const T& b) { return less(b, a); }                            \
  T greater(const T& a, double b) { return less(b, a); }                              \
  T greater_equal(const T& a, const T& b) { return less_equal(b, a); }                \
  T greater_equal(const T& a, double b) { return less_equal(b, a); }                  \
  T not_equal(const T& a, const T& b) { return 1 - equal(a, b); }                     \
  T not_equal(const T& a, double b) { return 1 - equal(a, b); }                       \
  T logical_and(const T& a, const T& b) { return not_equal(a, 0) * not_equal(b, 0); } \
  T logical_or(const T& a, const T& b) { return 1 - equal(a, 0) * equal(b, 0); }      \
  T logical_xor(const T& a, const T& b) { return not_equal(equal(a, 0), equal(b, 0)); }
LOCKSTEP_DEFINE_FOR(Tensor)
LOCKSTEP_DEFINE_FOR(Value)
#undef LOCKSTEP_DEFINE_FOR

}  // namespace lockstep::ops
