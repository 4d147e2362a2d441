#include <string>
#include <vector>

#include "lockstep/engine/nn/metrics/confusion_matrix.h"
#include "lockstep/engine/nn/metrics/registry.h"
#include "lockstep/engine/nn/metrics/scores.h"

namespace lockstep {
namespace {

// Mean over classes of a value that is computed from ClassCounts.
struct ClassMean {
  std::string name = {};
  double (ClassCounts::*of)() const = nullptr;
  std::vector<ClassCounts> counts = {};

  void init(const MetricProblem& problem) {
    require_classes(name, problem);
    counts.resize(problem.classes.size());
  }
  void accumulate(const ScoredObservation& o) {
    const auto label = static_cast<size_t>(o.label);
    const auto predicted = static_cast<size_t>(predicted_of(o));
    counts[label].observed += o.count;
    counts[predicted].predicted += o.count;
    if (label == predicted) counts[label].right += o.count;
  }
  bool of_classes() const { return true; }
  void merge(const ClassMean& later) {
    for (size_t c = 0; c < counts.size(); ++c) {
      counts[c].observed += later.counts[c].observed;
      counts[c].predicted += later.counts[c].predicted;
      counts[c].right += later.counts[c].right;
    }
  }
  double finish() const {
    double sum = 0;
    int64_t occurring = 0;
    for (const ClassCounts& c : counts) {
      if (c.observed + c.predicted == 0) continue;
      sum += (c.*of)();
      ++occurring;
    }
    return quotient(sum, occurring);
  }
};

MetricPtr mean_of(const std::string& name, double (ClassCounts::*of)() const) {
  return make_metric(name, ClassMean{name, of});
}

}  // namespace

MetricInfo metrics::precision() {
  return {.name = "precision",
          .help =
              "fraction of the observations predicted as a class that belong to it; mean over "
              "classes",
          .share = true,
          .make = [](const std::string& name, int64_t) {
            return mean_of(name, &ClassCounts::precision);
          }};
}

MetricInfo metrics::recall() {
  return {
      .name = "recall",
      .help = "fraction of the observations of a class that are predicted as it; mean over classes",
      .share = true,
      .make = [](const std::string& name, int64_t) { return mean_of(name, &ClassCounts::recall); }};
}

MetricInfo metrics::f1() {
  return {.name = "f1",
          .help = "harmonic mean of precision and recall of a class; mean over classes",
          .make = [](const std::string& name, int64_t) { return mean_of(name, &ClassCounts::f1); }};
}

MetricInfo metrics::dice() {
  return {.name = "dice",
          .help =
              "Dice coefficient: twice the intersection over the sum of the observations of a "
              "class and those predicted as it, which is its f1; mean over classes",
          .make = [](const std::string& name, int64_t) { return mean_of(name, &ClassCounts::f1); }};
}

MetricInfo metrics::iou() {
  return {
      .name = "iou",
      .help =
          "intersection over union: of the observations that belong to a class or are predicted "
          "as it, the fraction for which both hold; mean over classes",
      .make = [](const std::string& name, int64_t) { return mean_of(name, &ClassCounts::iou); }};
}

}  // namespace lockstep
