// Losses of probabilities, and their logarithms.
#include "lockstep/engine/ops/applied.h"
#include "lockstep/engine/ops/losses/per_observation.h"
#include "lockstep/engine/ops/shapes/views.h"

namespace lockstep::ops {
namespace {

// log(p), at least -100, with a slope of at most 1e12, so that a probability of 0 can be left.
template <Operand T>
T bounded_log(const T& p) {
  constexpr double smallest = 1e-12;
  const T usual = less(smallest, p);
  const T fixed = detached(p);
  const T small = maximum(log(fixed), -100.0) + (p - fixed) * (1 / smallest);
  return where(usual, log(where(usual, p, 1.0)), small);
}

}  // namespace

template <Operand T>
T binary_cross_entropy(const T& probabilities, const Same<T>& target) {
  return named("binary_cross_entropy", [&] {
    check_pair("binary_cross_entropy", probabilities.shape(), target.shape());
    return mean_of_observations(
        -(target * bounded_log(probabilities) + (1.0 - target) * bounded_log(1.0 - probabilities)));
  });
}
LOCKSTEP_INSTANTIATE_2(binary_cross_entropy)

template <Operand T>
T binary_cross_entropy_with_logits(const T& logits, const Same<T>& target) {
  return named("binary_cross_entropy_with_logits", [&] {
    check_pair("binary_cross_entropy_with_logits", logits.shape(), target.shape());
    // x (1 - t) + log(1 + e^-x), or -x t + log(1 + e^x) below 0: for targets of 0 and 1 nothing
    // cancels, nor does it in derivatives.
    const T right = less_equal(0.0, logits);
    const T away = logits * (right * 2.0 - 1.0);
    return mean_of_observations(logits * (right - target) + softplus(-away));
  });
}
LOCKSTEP_INSTANTIATE_2(binary_cross_entropy_with_logits)

template <Operand T>
T kl_div(const T& log_probabilities, const Same<T>& target) {
  return named("kl_div", [&] {
    check_pair("kl_div", log_probabilities.shape(), target.shape());
    const T none = equal(target, 0.0);
    // The logarithm of a 1 in place of a 0: where() alone would not keep the slope of log(0) away.
    const T surprise = where(none, 0.0, log(where(none, 1.0, target)) - log_probabilities);
    return sum_of_observations(target * surprise);
  });
}
LOCKSTEP_INSTANTIATE_2(kl_div)

}  // namespace lockstep::ops
