#include "lockstep/engine/nn/metrics/scores.h"

#include <cmath>
#include <limits>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

// "rmse and mae measure images".
std::string measure(bool images) {
  const std::vector<std::string> names = metric_names(images);
  std::string text;
  for (size_t i = 0; i < names.size(); ++i) {
    if (i > 0) text += i + 1 < names.size() ? ", " : " and ";
    text += names[i];
  }
  const std::string verb = names.size() == 1 ? " measures " : " measure ";
  return text + verb + (images ? "images" : "classification");
}

}  // namespace

double quotient(double sum, int64_t count) {
  return count == 0 ? std::nan("") : sum / static_cast<double>(count);
}

float comparable(float score) {
  return std::isnan(score) ? -std::numeric_limits<float>::infinity() : score;
}

void require_classes(const std::string& metric, const MetricProblem& problem) {
  if (!problem.classes.empty()) return;
  throw InvalidArgument(
      "[metrics] " + metric + " measures classification, the network makes images", measure(true));
}

void require_images(const std::string& metric, const MetricProblem& problem) {
  if (problem.classes.empty()) return;
  throw InvalidArgument("[metrics] " + metric + " measures images, the network learns classes",
                        measure(false));
}

}  // namespace lockstep
