#include <cmath>
#include <string>

#include "lockstep/engine/nn/metrics/registry.h"
#include "lockstep/engine/nn/metrics/scores.h"

namespace lockstep {
namespace {

// Mean over all elements of the squared or absolute difference. For squares, finish() returns the
// root.
struct ImageError {
  std::string name = {};
  bool squared = true;
  double sum = 0;  // over observations, of the mean over their elements
  int64_t count = 0;

  void init(const MetricProblem& problem) const { require_images(name, problem); }
  void accumulate(const ScoredObservation& o) {
    double all = 0;
    for (size_t i = 0; i < o.scores.size(); ++i) {
      const double d = static_cast<double>(o.scores[i]) - static_cast<double>(o.target[i]);
      all += squared ? d * d : std::abs(d);
    }
    sum += all / static_cast<double>(o.scores.size());
    ++count;
  }
  void merge(const ImageError& later) { sum += later.sum, count += later.count; }
  double finish() const {
    const double mean = quotient(sum, count);
    return squared ? std::sqrt(mean) : mean;
  }
};

}  // namespace

MetricInfo metrics::rmse() {
  return {.name = "rmse",
          .help = "root mean squared error over all elements (pixels are 0 to 1)",
          .images = true,
          .error = true,
          .make = [](const std::string& name, int64_t) {
            return make_metric(name, ImageError{name, true});
          }};
}

MetricInfo metrics::mae() {
  return {.name = "mae",
          .help = "mean absolute error over all elements (pixels are 0 to 1)",
          .images = true,
          .error = true,
          .make = [](const std::string& name, int64_t) {
            return make_metric(name, ImageError{name, false});
          }};
}

}  // namespace lockstep
