#include <algorithm>
#include <cmath>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/engine/nn/metrics/registry.h"
#include "lockstep/engine/nn/metrics/scores.h"

namespace lockstep {
namespace {

// Stores all scores in the order of the observations. Pairs are counted in integers at the end.
struct AreaUnderCurve {
  size_t classes = 0;
  std::vector<float> scores = {};  // observations x classes; for two classes the second only
  std::vector<int32_t> labels = {};

  void init(const MetricProblem& problem) {
    require_classes("auc", problem);
    classes = problem.classes.size();
    if (classes < 2) throw InvalidArgument("[metrics] auc needs two classes, there is 1");
  }
  void accumulate(const ScoredObservation& o) {
    for (float score : o.scores.subspan(classes == 2 ? 1 : 0)) scores.push_back(comparable(score));
    labels.push_back(static_cast<int32_t>(o.label));
  }
  void merge(const AreaUnderCurve& later) {
    scores.insert(scores.end(), later.scores.begin(), later.scores.end());
    labels.insert(labels.end(), later.labels.begin(), later.labels.end());
  }

  // Area for one class against the rest. NaN if one of the two is empty.
  double area(size_t column, size_t columns, int32_t label) const {
    struct Entry {
      float score;
      bool positive;
    };
    std::vector<Entry> entries;
    for (size_t i = 0; i < labels.size(); ++i) {
      entries.push_back({scores[i * columns + column], labels[i] == label});
    }
    std::sort(entries.begin(), entries.end(),
              [](const Entry& a, const Entry& b) { return a.score < b.score; });
    // Twice the number of pairs in which the positive observation scores higher, plus the number of
    // ties.
    int64_t twice = 0, negatives = 0, positives = 0;
    for (size_t begin = 0, end = 0; begin < entries.size(); begin = end) {
      int64_t tied[2] = {0, 0};
      for (; end < entries.size() && entries[end].score == entries[begin].score; ++end) {
        ++tied[entries[end].positive ? 1 : 0];
      }
      twice += tied[1] * (2 * negatives + tied[0]);
      negatives += tied[0];
      positives += tied[1];
    }
    if (negatives == 0 || positives == 0) return std::nan("");
    return static_cast<double>(twice) /
           (2 * static_cast<double>(negatives) * static_cast<double>(positives));
  }

  double finish() const {
    if (classes == 2) return area(0, 1, 1);
    double sum = 0;
    int64_t defined = 0;
    for (size_t c = 0; c < classes; ++c) {
      const double one = area(c, classes, static_cast<int32_t>(c));
      if (std::isnan(one)) continue;
      sum += one;
      ++defined;
    }
    return quotient(sum, defined);
  }
};

}  // namespace

MetricInfo metrics::auc() {
  return {
      .name = "auc",
      .help =
          "area under the receiver operating characteristic: the probability that an "
          "observation of the class scores higher than one of another class; a tie counts "
          "half. For two classes, that of the second; for more, the mean of each class "
          "against the rest",
      .make = [](const std::string& name, int64_t) { return make_metric(name, AreaUnderCurve{}); }};
}

}  // namespace lockstep
