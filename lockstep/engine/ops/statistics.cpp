// Statistics along axes, made of sums, products and largest elements. What is refused gets the name
// of the function by named().
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/engine/ops/applied.h"
#include "lockstep/engine/ops/ops.h"
#include "lockstep/engine/ops/views.h"

namespace lockstep::ops {
namespace {

int64_t elements_along(const std::vector<int>& axes, const Shape& x) {
  int64_t count = 1;
  for (const int axis : resolved_axes("statistics", axes, x)) count *= x[axis];
  return count;
}

// Throws InvalidArgument for axes that x does not have or that have no elements.
void check_axes(const std::vector<int>& axes, const Shape& x) {
  if (elements_along(axes, x) > 0) return;
  throw InvalidArgument("[statistics] no elements along the axes, input " + x.to_string());
}

// sqrt(x), with the derivative 0 where x is 0.
template <class T>
T root(const T& x) {
  const T zero = equal(x, 0);
  return where(zero, 0, sqrt(where(zero, 1, x)));
}

// x shifted so that exp() of it does not overflow, and the shift.
template <class T>
std::pair<T, T> below_largest(const T& x, const std::vector<int>& axes) {
  const T most = detached(max(x, axes, true));
  const T shift = where(isfinite(most), most, 0);
  return {x - shift, shift};
}

template <class T>
T variance(const T& x, const std::vector<int>& axes, bool keep_dims, double correction) {
  const auto count = static_cast<double>(elements_along(axes, x.shape()));
  if (!(count > correction) || count == 0) {
    throw InvalidArgument("[statistics] " + std::to_string(static_cast<int64_t>(count)) +
                          " elements along the axes of " + x.shape().to_string() +
                          " are too few for a correction of " + std::to_string(correction));
  }
  const T apart = square(x - mean(x, axes, true));
  return mean(apart, axes, keep_dims) * (count / (count - correction));
}

}  // namespace

template <Operand T>
T var(const T& x, const std::vector<int>& axes, bool keep_dims, double correction) {
  return named("var", [&] { return variance(x, axes, keep_dims, correction); });
}
LOCKSTEP_INSTANTIATE_1(var, const std::vector<int>&, bool, double)

template <Operand T>
T std(const T& x, const std::vector<int>& axes, bool keep_dims, double correction) {
  return named("std", [&] { return root(variance(x, axes, keep_dims, correction)); });
}
LOCKSTEP_INSTANTIATE_1(std, const std::vector<int>&, bool, double)

template <Operand T>
T norm(const T& x, const std::vector<int>& axes, bool keep_dims) {
  return named("norm", [&] {
    // The root of a square has no second derivative without cancellation.
    if (elements_along(axes, x.shape()) == 1) {
      const T size = abs(x);
      return keep_dims ? size : squeeze(size, axes);
    }
    return root(sum(square(x), axes, keep_dims));
  });
}
LOCKSTEP_INSTANTIATE_1(norm, const std::vector<int>&, bool)

template <Operand T>
T logsumexp(const T& x, const std::vector<int>& axes, bool keep_dims) {
  return named("logsumexp", [&] {
    check_axes(axes, x.shape());
    const auto [below, shift] = below_largest(x, axes);
    const T all = log(sum(exp(below), axes, true)) + shift;
    return keep_dims ? all : squeeze(all, axes);
  });
}
LOCKSTEP_INSTANTIATE_1(logsumexp, const std::vector<int>&, bool)

template <Operand T>
T all(const T& x, const std::vector<int>& axes, bool keep_dims) {
  return named("all", [&] { return equal(sum(equal(x, 0), axes, keep_dims), 0); });
}
LOCKSTEP_INSTANTIATE_1(all, const std::vector<int>&, bool)

template <Operand T>
T any(const T& x, const std::vector<int>& axes, bool keep_dims) {
  return named("any", [&] { return not_equal(sum(not_equal(x, 0), axes, keep_dims), 0); });
}
LOCKSTEP_INSTANTIATE_1(any, const std::vector<int>&, bool)

template <Operand T>
T log_softmax(const T& x, int axis) {
  return named("log_softmax", [&] {
    check_axes({axis}, x.shape());
    const T below = below_largest(x, {axis}).first;
    return below - log(sum(exp(below), {axis}, true));
  });
}
LOCKSTEP_INSTANTIATE_1(log_softmax, int)

}  // namespace lockstep::ops
