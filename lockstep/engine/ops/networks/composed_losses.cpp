// Losses made of other ops.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numeric>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/engine/kernels/reductions/arg_axis.h"
#include "lockstep/engine/ops/applied.h"
#include "lockstep/engine/ops/networks/per_observation.h"
#include "lockstep/engine/ops/ops.h"
#include "lockstep/engine/ops/views.h"

namespace lockstep::ops {

// Losses of a prediction and a target of numbers.

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

// Losses of probabilities, and their logarithms.

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

// Losses by labels, made of other ops: labels that do not count, weights of classes, smoothing.

namespace {

// Labels are compared as floats, which are exact up to here.
constexpr int64_t kMostClasses = 1 << 24;

template <class T>
void check_labels(const T& scores, const T& labels, const T& weights,
                  const CrossEntropyParams& params) {
  const Shape of_scores = scores.shape(), of_labels = labels.shape();
  const bool fits =
      of_scores.rank() >= 2 && of_scores[1] > 0 && of_labels == kernels::without_axis(of_scores, 1);
  if (!fits || (labels.dtype() != DType::i32 && labels.dtype() != DType::i64)) {
    throw InvalidArgument(
        "[labels] expected scores of n x c or n x c x space and labels of n or n "
        "x space, i32 or i64, received " +
            of_scores.to_string() + " and " + of_labels.to_string() + " " +
            std::string(name_of(labels.dtype())),
        "shares of classes are labels of softmax_cross_entropy() without settings");
  }
  if (of_scores[1] > kMostClasses || std::abs(params.ignore_index) > kMostClasses) {
    throw InvalidArgument(fmt::format(
        "[labels] expected at most {} classes and an ignore_index of that size, received {} and {}",
        kMostClasses, of_scores[1], params.ignore_index));
  }
  if (weights.defined() && !(weights.shape() == Shape{of_scores[1]})) {
    throw InvalidArgument("[labels] expected " + std::to_string(of_scores[1]) +
                          " weights, one for each class, received " + weights.shape().to_string());
  }
  if (!(params.label_smoothing >= 0 && params.label_smoothing <= 1)) {
    throw InvalidArgument(fmt::format("[labels] label_smoothing must be from 0 to 1, received {}",
                                      params.label_smoothing));
  }
}

// -log(probability) of labels. `certain`: the score of a class that is certain. logs_of(scores) are
// logarithms of probabilities; of all classes they are computed only for smoothing, because the
// slope of log(0) is not a number.
template <class T, class LogsOf>
T surprise(const T& scores, double certain, const T& labels, const T& weights,
           const CrossEntropyParams& params, const LogsOf& logs_of) {
  const T numbers = astype(labels, DType::f32);
  const T ignored = equal(numbers, static_cast<double>(params.ignore_index));
  // A label that is ignored becomes class 0, and its classes are certain.
  const T counted = where(expand_dims(ignored, 1), certain, scores);
  const T present = expand_dims(astype(where(ignored, 0.0, numbers), DType::i32), 1);
  T loss = negate(logs_of(squeeze(gather(counted, present, 1), {1})));
  if (weights.defined()) loss = loss * take(weights, squeeze(present, {1}), 0);
  if (params.label_smoothing > 0) {
    const T logs = logs_of(counted);
    const T all = weights.defined() ? logs * by_channel(weights, logs.shape()) : logs;
    loss = loss * (1 - params.label_smoothing) - mean(all, {1}) * params.label_smoothing;
  }
  return where(ignored, 0.0, loss);
}

template <class T>
T surprise_of_logs(const T& logs, const T& labels, const T& weights,
                   const CrossEntropyParams& params) {
  return surprise(logs, 0.0, labels, weights, params, [](const T& these) { return these; });
}

}  // namespace

template <Operand T>
T nll(const T& log_probabilities, const Same<T>& labels, const Same<T>& weights,
      int64_t ignore_index) {
  return named("nll", [&] {
    const CrossEntropyParams params{.ignore_index = ignore_index};
    check_labels(log_probabilities, labels, weights, params);
    return surprise_of_logs(log_probabilities, labels, weights, params);
  });
}
LOCKSTEP_INSTANTIATE_3(nll, int64_t)

template <Operand T>
T cross_entropy(const T& probabilities, const Same<T>& labels, const Same<T>& weights,
                const CrossEntropyParams& params) {
  return named("cross_entropy", [&] {
    check_labels(probabilities, labels, weights, params);
    return surprise(probabilities, 1.0, labels, weights, params, [](const T& p) { return log(p); });
  });
}
LOCKSTEP_INSTANTIATE_3(cross_entropy, const CrossEntropyParams&)

template <Operand T>
T softmax_cross_entropy(const T& logits, const Same<T>& labels, const Same<T>& weights,
                        const CrossEntropyParams& params) {
  return named("softmax_cross_entropy", [&] {
    check_labels(logits, labels, weights, params);
    return surprise_of_logs(log_softmax(logits, 1), labels, weights, params);
  });
}
LOCKSTEP_INSTANTIATE_3(softmax_cross_entropy, const CrossEntropyParams&)

template <Operand T>
T classes_first(const T& labels, int64_t classes, int64_t ignore_index) {
  const T numbers = astype(labels, DType::f32);
  const T ignored = equal(numbers, static_cast<double>(ignore_index));
  const T last = one_hot(astype(where(ignored, 0.0, numbers), DType::i32), classes);
  std::vector<int> axes(static_cast<size_t>(last.shape().rank()));
  std::iota(axes.begin(), axes.end(), 0);
  std::rotate(axes.begin() + 1, axes.end() - 1, axes.end());
  return where(expand_dims(ignored, 1), 0.0, permute_dims(last, axes));
}
LOCKSTEP_INSTANTIATE_1(classes_first, int64_t, int64_t)

template <Operand T>
T dice_loss(const T& probabilities, const Same<T>& labels, const Same<T>& weights,
            const DiceParams& params) {
  return named("dice_loss", [&] {
    check_labels(probabilities, labels, weights, {.ignore_index = params.ignore_index});
    if (!(static_cast<float>(params.smooth) > 0) || std::isinf(params.smooth)) {
      throw InvalidArgument(
          fmt::format("[dice_loss] smooth must be above 0, received {}", params.smooth),
          "without it a class that an observation does not have would divide by 0");
    }
    const Shape shape = probabilities.shape();
    const T ignored = equal(astype(labels, DType::f32), static_cast<double>(params.ignore_index));
    const T truth = classes_first(labels, shape[1], params.ignore_index);
    const T found = where(expand_dims(ignored, 1), 0.0, probabilities);
    std::vector<int> space(static_cast<size_t>(shape.rank() - 2));
    std::iota(space.begin(), space.end(), 2);
    const auto over_space = [&](const T& x) { return space.empty() ? x : sum(x, space); };
    const T both = over_space(found * truth) * 2.0 + params.smooth;
    const T losses = 1.0 - both / (over_space(found) + over_space(truth) + params.smooth);
    if (!weights.defined()) return mean(losses, {1});
    return sum(losses * weights, {1}) / sum(weights);
  });
}
LOCKSTEP_INSTANTIATE_3(dice_loss, const DiceParams&)

}  // namespace lockstep::ops
