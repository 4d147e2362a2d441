#include <string>

#include "lockstep/base/counted.h"
#include "lockstep/base/error.h"
#include "lockstep/engine/nn/metrics/registry.h"
#include "lockstep/engine/nn/metrics/scores.h"

namespace lockstep {
namespace {

// Share of observations whose class is among the k highest.
struct TopK {
  const char* name = "accuracy";
  int64_t k = 1, right = 0, count = 0;

  void init(const MetricProblem& problem) const {
    require_classes(name, problem);
    const auto classes = static_cast<int64_t>(problem.classes.size());
    if (k <= classes) return;
    throw InvalidArgument("[metrics] top-" + std::to_string(k) + " needs at least " +
                          counted(k, "class", "classes") + ", there " +
                          (classes == 1 ? "is 1" : "are " + std::to_string(classes)));
  }
  void accumulate(const ScoredObservation& o) {
    count += o.count;
    if (o.predicted >= 0) {  // only for k = 1
      if (o.predicted == o.label) right += o.count;
      return;
    }
    const auto label = static_cast<size_t>(o.label);
    const float own = comparable(o.scores[label]);
    int64_t before = 0;
    for (size_t c = 0; c < o.scores.size(); ++c) {
      const float other = comparable(o.scores[c]);
      before += other > own || (other == own && c < label);
    }
    right += before < k;
  }
  bool of_classes() const { return k == 1; }
  void merge(const TopK& later) { right += later.right, count += later.count; }
  double finish() const { return quotient(static_cast<double>(right), count); }
};

}  // namespace

MetricInfo metrics::accuracy() {
  return {.name = "accuracy",
          .help = "fraction of observations whose class has the highest score",
          .share = true,
          .make = [](const std::string& name, int64_t) { return make_metric(name, TopK{}); }};
}

MetricInfo metrics::top_k() {
  return {.name = "top-K",
          .help = "fraction of observations whose class is among the K highest scores (top-5)",
          .numbered = true,
          .share = true,
          .make = [](const std::string& name, int64_t k) {
            return make_metric(name, TopK{"top-K", k});
          }};
}

}  // namespace lockstep
