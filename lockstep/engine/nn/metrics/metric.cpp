#include "lockstep/engine/nn/metrics/metric.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "lockstep/base/suggest.h"
#include "lockstep/engine/nn/metrics/confusion_matrix.h"

namespace lockstep {
namespace {

double quotient(double sum, int64_t count) {
  return count == 0 ? std::nan("") : sum / static_cast<double>(count);
}

float comparable(float score) {
  return std::isnan(score) ? -std::numeric_limits<float>::infinity() : score;
}

void need_classes(const char* name, const MetricProblem& problem) {
  if (!problem.classes.empty()) return;
  throw InvalidArgument(
      "[metrics] " + std::string(name) + " measures classification, the network makes images",
      "rmse and mae measure images");
}

// Share of observations whose class is among the k highest.
struct TopK {
  const char* name = "accuracy";
  int64_t k = 1, right = 0, count = 0;

  void init(const MetricProblem& problem) const {
    need_classes(name, problem);
    const auto classes = static_cast<int64_t>(problem.classes.size());
    if (k <= classes) return;
    throw InvalidArgument("[metrics] top-" + std::to_string(k) + " needs as many classes, there " +
                          (classes == 1 ? "is 1" : "are " + std::to_string(classes)));
  }
  void accumulate(const ScoredObservation& o) {
    const auto label = static_cast<size_t>(o.label);
    const float own = comparable(o.scores[label]);
    int64_t before = 0;
    for (size_t c = 0; c < o.scores.size(); ++c) {
      const float other = comparable(o.scores[c]);
      before += other > own || (other == own && c < label);
    }
    right += before < k;
    ++count;
  }
  void merge(const TopK& later) { right += later.right, count += later.count; }
  double finish() const { return quotient(static_cast<double>(right), count); }
};

// Mean over classes of a value that is computed from ClassCounts.
struct ClassMean {
  const char* name = "";
  double (ClassCounts::*of)() const = nullptr;
  std::vector<ClassCounts> counts = {};

  void init(const MetricProblem& problem) {
    need_classes(name, problem);
    counts.resize(problem.classes.size());
  }
  void accumulate(const ScoredObservation& o) {
    const auto label = static_cast<size_t>(o.label);
    const auto predicted = static_cast<size_t>(predicted_class(o.scores));
    ++counts[label].observed;
    ++counts[predicted].predicted;
    counts[label].right += label == predicted;
  }
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

// Stores all scores in the order of the observations. Pairs are counted in integers at the end.
struct AreaUnderCurve {
  size_t classes = 0;
  std::vector<float> scores = {};  // observations x classes; for two classes the second only
  std::vector<int32_t> labels = {};

  void init(const MetricProblem& problem) {
    need_classes("auc", problem);
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

// Mean over all elements of the squared or absolute difference. For squares, finish() returns the
// root.
struct ImageError {
  const char* name = "";
  bool squared = true;
  double sum = 0;  // over observations, of the mean over their elements
  int64_t count = 0;

  void init(const MetricProblem& problem) const {
    if (problem.classes.empty()) return;
    throw InvalidArgument(
        "[metrics] " + std::string(name) + " measures images, the network learns classes",
        "accuracy, top-K, precision, recall, f1 and auc measure classification");
  }
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

// Returns K of "top-K", or 0 for other names.
int64_t top_k(const std::string& name) {
  constexpr std::string_view prefix = "top-";
  if (!name.starts_with(prefix)) return 0;
  int64_t k = 0;
  const char *const begin = name.data() + prefix.size(), *const end = name.data() + name.size();
  const auto [stop, error] = std::from_chars(begin, end, k);
  return error == std::errc() && stop == end && *begin != '0' && k > 0 ? k : 0;
}

}  // namespace

MetricPtr metric_by_name(const std::string& name) {
  if (name == "accuracy") return make_metric(name, TopK{});
  if (name == "precision")
    return make_metric(name, ClassMean{"precision", &ClassCounts::precision});
  if (name == "recall") return make_metric(name, ClassMean{"recall", &ClassCounts::recall});
  if (name == "f1") return make_metric(name, ClassMean{"f1", &ClassCounts::f1});
  if (name == "auc") return make_metric(name, AreaUnderCurve{});
  if (name == "rmse") return make_metric(name, ImageError{"rmse", true});
  if (name == "mae") return make_metric(name, ImageError{"mae", false});
  if (const int64_t k = top_k(name); k > 0) return make_metric(name, TopK{"top-K", k});
  throw InvalidArgument(
      "[metrics] unknown metric `" + name + "`",
      suggest(name, {"accuracy", "top-5", "precision", "recall", "f1", "auc", "rmse", "mae"}));
}

std::vector<MetricPtr> metrics_for(const std::vector<std::string>& names,
                                   const std::vector<MetricPtr>& own,
                                   const MetricProblem& problem) {
  std::vector<MetricPtr> all;
  for (const std::string& name : names) all.push_back(metric_by_name(name));
  for (const MetricPtr& metric : own) {
    if (!metric) throw InvalidArgument("[metrics] a metric of one's own is null");
    all.push_back(metric);
  }
  for (size_t i = 0; i < all.size(); ++i) {
    const std::string& name = all[i]->name();
    if (name.empty() || !std::all_of(name.begin(), name.end(),
                                     [](unsigned char c) { return c >= ' ' && c <= '~'; })) {
      throw InvalidArgument("[metrics] a metric's name must be printable ASCII");
    }
    for (size_t j = 0; j < i; ++j) {
      if (all[j]->name() != name) continue;
      throw InvalidArgument("[metrics] `" + name + "` is there twice");
    }
    all[i]->init(problem);
  }
  return all;
}

int64_t predicted_class(std::span<const float> scores) {
  size_t best = 0;
  for (size_t c = 1; c < scores.size(); ++c) {
    if (comparable(scores[c]) > comparable(scores[best])) best = c;
  }
  return static_cast<int64_t>(best);
}

bool metric_is_share(const std::string& metric) {
  return metric == "accuracy" || metric == "precision" || metric == "recall" || top_k(metric) > 0;
}

}  // namespace lockstep
