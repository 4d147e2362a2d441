// Losses by labels, made of other ops: labels that do not count, weights of classes, smoothing.
#include <fmt/format.h>

#include <string>

#include "lockstep/base/error.h"
#include "lockstep/engine/ops/applied.h"
#include "lockstep/engine/ops/ops.h"
#include "lockstep/engine/ops/shapes/views.h"

namespace lockstep::ops {
namespace {

template <class T>
void check_labels(const T& scores, const T& labels, const T& weights) {
  const Shape x = scores.shape(), of = labels.shape();
  bool fits = x.rank() >= 2 && of.rank() == x.rank() - 1 && x[1] > 0;
  for (int a = 0; fits && a < of.rank(); ++a) fits = of[a] == x[a == 0 ? 0 : a + 1];
  if (!fits || (labels.dtype() != DType::i32 && labels.dtype() != DType::i64)) {
    throw InvalidArgument(
        "[labels] expected scores of n x c or n x c x space and labels of n or n "
        "x space, i32 or i64, received " +
            x.to_string() + " and " + of.to_string() + " " + std::string(name_of(labels.dtype())),
        "shares of classes are labels of softmax_cross_entropy() without settings");
  }
  if (weights.defined() && !(weights.shape() == Shape{x[1]})) {
    throw InvalidArgument("[labels] expected " + std::to_string(x[1]) +
                          " weights, one for each class, received " + weights.shape().to_string());
  }
}

// A vector of classes, in a shape that broadcasts to scores.
template <class T>
T along_classes(const T& vector, const Shape& scores) {
  std::vector<int64_t> dims(static_cast<size_t>(scores.rank()), 1);
  dims[1] = scores[1];
  return reshaped(vector, Shape(dims));
}

// -log(probability) of labels, from the logarithms of all classes. A label that is ignored has a
// loss of 0.
template <class T>
T surprise(const T& logs, const T& labels, const T& weights, const CrossEntropyParams& params) {
  check_labels(logs, labels, weights);
  const T numbers = astype(labels, DType::f32);
  const T ignored = equal(numbers, static_cast<double>(params.ignore_index));
  // Class 0 stands for them, because its probability is there.
  const T present = expand_dims(astype(where(ignored, 0.0, numbers), DType::i32), 1);
  T loss = negate(squeeze(gather(logs, present, 1), {1}));
  if (weights.defined()) {
    loss = loss * take(weights, squeeze(present, {1}), 0);
  }
  if (params.label_smoothing > 0) {
    const T all = weights.defined() ? logs * along_classes(weights, logs.shape()) : logs;
    loss = loss * (1 - params.label_smoothing) - mean(all, {1}) * params.label_smoothing;
  }
  return where(ignored, 0.0, loss);
}

void check_smoothing(double smoothing) {
  if (smoothing >= 0 && smoothing <= 1) return;
  throw InvalidArgument(
      fmt::format("[labels] label_smoothing must be from 0 to 1, received {}", smoothing));
}

}  // namespace

template <Operand T>
T nll(const T& log_probabilities, const Same<T>& labels, const Same<T>& weights,
      int64_t ignore_index) {
  return named("nll", [&] {
    return surprise(log_probabilities, labels, weights, {.ignore_index = ignore_index});
  });
}
LOCKSTEP_INSTANTIATE_3(nll, int64_t)

template <Operand T>
T cross_entropy(const T& probabilities, const Same<T>& labels, const Same<T>& weights,
                const CrossEntropyParams& params) {
  return named("cross_entropy", [&] {
    check_smoothing(params.label_smoothing);
    return surprise(log(probabilities), labels, weights, params);
  });
}
LOCKSTEP_INSTANTIATE_3(cross_entropy, const CrossEntropyParams&)

template <Operand T>
T softmax_cross_entropy(const T& logits, const Same<T>& labels, const Same<T>& weights,
                        const CrossEntropyParams& params) {
  return named("softmax_cross_entropy", [&] {
    check_smoothing(params.label_smoothing);
    check_labels(logits, labels, weights);
    return surprise(log_softmax(logits, 1), labels, weights, params);
  });
}
LOCKSTEP_INSTANTIATE_3(softmax_cross_entropy, const CrossEntropyParams&)

}  // namespace lockstep::ops
