#include "lockstep/engine/nn/metrics/scores.h"

#include <cmath>
#include <limits>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

// "rmse and mae are regression metrics".
std::string measure(bool images) {
  const std::vector<std::string> names = metric_names(images);
  std::string text;
  for (size_t i = 0; i < names.size(); ++i) {
    if (i > 0) text += i + 1 < names.size() ? ", " : " and ";
    text += names[i];
  }
  const std::string kind = images ? "regression metric" : "classification metric";
  return text + (names.size() == 1 ? " is a " + kind : " are " + kind + "s");
}

}  // namespace

double quotient(double sum, int64_t count) {
  return count == 0 ? std::nan("") : sum / static_cast<double>(count);
}

float comparable(float score) {
  return std::isnan(score) ? -std::numeric_limits<float>::infinity() : score;
}

int64_t predicted_of(const ScoredObservation& o) {
  return o.predicted >= 0 ? o.predicted : predicted_class(o.scores);
}

void require_classes(const std::string& metric, const MetricProblem& problem) {
  if (!problem.classes.empty()) return;
  throw InvalidArgument("[metrics] " + metric +
                            " is a classification metric, but the network is a regression network",
                        measure(true));
}

void require_images(const std::string& metric, const MetricProblem& problem) {
  if (problem.classes.empty()) return;
  throw InvalidArgument(
      "[metrics] " + metric + " is a regression metric, but the network is a classifier",
      measure(false));
}

}  // namespace lockstep
