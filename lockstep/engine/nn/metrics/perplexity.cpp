#include <algorithm>
#include <limits>

#include "lockstep/engine/kernels/elementwise/double_functions.h"
#include "lockstep/engine/nn/metrics/registry.h"
#include "lockstep/engine/nn/metrics/scores.h"

namespace lockstep {
namespace {

// e to the mean surprise. A probability that is rounded to 0 counts as the least normal float, so
// that one impossible token does not hide all others.
struct Perplexity {
  double surprise = 0;
  int64_t count = 0;

  void init(const MetricProblem& problem) const { require_classes("perplexity", problem); }
  void accumulate(const ScoredObservation& o) {
    const float p = comparable(o.scores[static_cast<size_t>(o.label)]);
    surprise -= kernels::in_double::logarithm(std::max(p, std::numeric_limits<float>::min()));
    ++count;
  }
  void merge(const Perplexity& later) { surprise += later.surprise, count += later.count; }
  double finish() const { return kernels::in_double::exponential(quotient(surprise, count)); }
};

}  // namespace

MetricInfo metrics::perplexity() {
  return {.name = "perplexity",
          .help = "e to the mean of -log(probability of the class), of texts by token",
          .error = true,
          .make = [](const std::string& name, int64_t) { return make_metric(name, Perplexity{}); }};
}

}  // namespace lockstep
