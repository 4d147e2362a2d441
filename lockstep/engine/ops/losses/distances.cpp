// Losses of a prediction and a target of numbers.
#include <fmt/format.h>

#include <cmath>
#include <numeric>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/engine/ops/applied.h"
#include "lockstep/engine/ops/losses/per_observation.h"

namespace lockstep::ops {

void check_pair(std::string_view op, const Shape& prediction, const Shape& target) {
  if (prediction == target && prediction.rank() >= 1 && prediction.without_batch().elements() > 0) {
    return;
  }
  throw InvalidArgument("[" + std::string(op) +
                        "] expected prediction and target of one shape n x ..., received " +
                        prediction.to_string() + " and " + target.to_string());
}

std::vector<int> observation_axes(const Shape& x) {
  std::vector<int> axes(static_cast<size_t>(x.rank() - 1));
  std::iota(axes.begin(), axes.end(), 1);
  return axes;
}

namespace {

// Half the square of d up to `limit`, then as steep as there. The form is smooth within, so that
// second derivatives are right at 0, too.
template <Operand T>
T huber_of(const T& d, double limit) {
  const T near = clip(d, -limit, limit);
  return near * (d - near * 0.5);
}

}  // namespace

template <Operand T>
T l1(const T& prediction, const Same<T>& target) {
  return named("l1", [&] {
    check_pair("l1", prediction.shape(), target.shape());
    return mean_of_observations(abs(prediction - target));
  });
}
LOCKSTEP_INSTANTIATE_2(l1)

template <Operand T>
T huber(const T& prediction, const Same<T>& target, double delta) {
  return named("huber", [&] {
    check_pair("huber", prediction.shape(), target.shape());
    if (!(static_cast<float>(delta) > 0) || std::isinf(delta)) {
      throw InvalidArgument(fmt::format("[huber] delta must be above 0, received {}", delta));
    }
    return mean_of_observations(huber_of(prediction - target, delta));
  });
}
LOCKSTEP_INSTANTIATE_2(huber, double)

template <Operand T>
T smooth_l1(const T& prediction, const Same<T>& target, double beta) {
  return named("smooth_l1", [&] {
    check_pair("smooth_l1", prediction.shape(), target.shape());
    if (!(beta >= 0) || std::isinf(beta)) {
      throw InvalidArgument(fmt::format("[smooth_l1] beta must be 0 or above, received {}", beta));
    }
    if (static_cast<float>(beta) == 0) return l1(prediction, target);
    return mean_of_observations(huber_of(prediction - target, beta) / beta);
  });
}
LOCKSTEP_INSTANTIATE_2(smooth_l1, double)

template <Operand T>
T hinge(const T& prediction, const Same<T>& target, double margin) {
  return named("hinge", [&] {
    check_pair("hinge", prediction.shape(), target.shape());
    if (!std::isfinite(margin)) {
      throw InvalidArgument(fmt::format("[hinge] margin must be finite, received {}", margin));
    }
    return mean_of_observations(relu(margin - target * prediction));
  });
}
LOCKSTEP_INSTANTIATE_2(hinge, double)

template <Operand T>
T cosine_similarity(const T& a, const Same<T>& b, double epsilon) {
  return named("cosine_similarity", [&] {
    check_pair("cosine_similarity", a.shape(), b.shape());
    if (!(static_cast<float>(epsilon * epsilon) > 0) || std::isinf(epsilon)) {
      throw InvalidArgument(
          fmt::format("[cosine_similarity] epsilon must be above 0, received {}", epsilon),
          epsilon > 0 ? "also its square, as a float" : "");
    }
    // The bound is below the root: the root of 0 has no derivative.
    const auto norm = [&](const T& x) {
      return sqrt(maximum(sum_of_observations(square(x)), epsilon * epsilon));
    };
    return sum_of_observations(a * b) / (norm(a) * norm(b));
  });
}
LOCKSTEP_INSTANTIATE_2(cosine_similarity, double)

template <Operand T>
T triplet_margin(const T& anchor, const Same<T>& positive, const Same<T>& negative, double margin,
                 double epsilon) {
  return named("triplet_margin", [&] {
    check_pair("triplet_margin", anchor.shape(), positive.shape());
    check_pair("triplet_margin", anchor.shape(), negative.shape());
    if (!std::isfinite(margin) || !std::isfinite(epsilon)) {
      throw InvalidArgument(
          fmt::format("[triplet_margin] margin and epsilon must be finite, received {} and {}",
                      margin, epsilon));
    }
    const auto distance = [&](const T& other) {
      const T apart = anchor - other + epsilon;
      return norm(apart, observation_axes(apart.shape()));
    };
    return relu(distance(positive) - distance(negative) + margin);
  });
}
LOCKSTEP_INSTANTIATE_3(triplet_margin, double, double)

}  // namespace lockstep::ops
