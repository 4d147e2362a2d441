// Metrics: numbers that say how good a network is, over all observations of some data.
//
// A metric begins a state (init); the state takes observations one by one (accumulate), takes in
// the state of observations behind its own (merge), and gives the value (finish). Parts of the data
// get states of their own, cut and merged in a way that depends on the data alone, so values are
// the same bit for bit for any number of threads.
//
// One's own metric is an object that is such a state:
//
//   struct MeanTopScore {
//     double sum = 0;
//     int64_t count = 0;
//     void init(const MetricProblem&) {}  // may refuse what does not fit; may be left out
//     void accumulate(const ScoredObservation& o) {
//       sum += *std::max_element(o.scores.begin(), o.scores.end());
//       ++count;
//     }
//     void merge(const MeanTopScore& later) { sum += later.sum, count += later.count; }
//     double finish() const { return sum / static_cast<double>(count); }
//   };
//   options.own_metrics = {make_metric("mean top score", MeanTopScore{})};
//
// Without merge() there is one state, which takes all observations in the order of the listing.
#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/shape.h"

namespace lockstep {

// One observation as metrics see it.
struct ScoredObservation {
  int64_t index = 0;                   // in the listing
  std::span<const float> scores = {};  // the network's output: probabilities, or an image
  int64_t label = -1;                  // its class; -1 where targets are images
  std::span<const float> target = {};  // image to image: what the output shall be, else empty
};

// What is to be measured.
struct MetricProblem {
  std::vector<std::string> classes = {};  // empty: image to image
  Shape output;                           // of one observation
};

// A metric's value over some data. NaN where it is not defined there.
struct MetricValue {
  std::string name;
  double value = 0;
  friend bool operator==(const MetricValue&, const MetricValue&) = default;
};

// One thread at a time.
class MetricState {
 public:
  virtual ~MetricState() = default;
  virtual void accumulate(const ScoredObservation& observation) = 0;
  // `later`: of the same metric, begun for the same problem, of observations that follow this
  // state's own. Not called where Metric::merges() is false.
  virtual void merge(const MetricState& later) = 0;
  virtual double finish() const = 0;
};

// Immutable, thread-safe.
class Metric {
 public:
  virtual ~Metric() = default;
  virtual const std::string& name() const = 0;
  virtual bool merges() const = 0;
  // Throws InvalidArgument where the metric does not fit the problem.
  virtual std::unique_ptr<MetricState> init(const MetricProblem& problem) const = 0;
};
using MetricPtr = std::shared_ptr<const Metric>;

template <class T>
concept MetricObject = std::copyable<T> && requires(T t, const T& c, const ScoredObservation& o) {
  t.accumulate(o);
  { c.finish() } -> std::convertible_to<double>;
};
template <class T>
concept MergingMetricObject = MetricObject<T> && requires(T t, const T& c) {
  t.merge(c);
};

// A metric whose states begin as copies of `prototype`; see above.
template <MetricObject T>
MetricPtr make_metric(std::string name, T prototype) {
  class State final : public MetricState {
   public:
    explicit State(T object) : object_(std::move(object)) {}
    void accumulate(const ScoredObservation& o) override { object_.accumulate(o); }
    void merge(const MetricState& later) override {
      if constexpr (MergingMetricObject<T>) {
        object_.merge(static_cast<const State&>(later).object_);
      } else {
        (void)later;
        throw InvalidArgument("[metrics] this metric has no merge()");
      }
    }
    double finish() const override { return static_cast<double>(object_.finish()); }

   private:
    T object_;
  };
  class Made final : public Metric {
   public:
    Made(std::string name, T prototype)
        : name_(std::move(name)), prototype_(std::move(prototype)) {}
    const std::string& name() const override { return name_; }
    bool merges() const override { return MergingMetricObject<T>; }
    std::unique_ptr<MetricState> init(const MetricProblem& problem) const override {
      T object = prototype_;
      if constexpr (requires { object.init(problem); }) object.init(problem);
      return std::make_unique<State>(std::move(object));
    }

   private:
    std::string name_;
    T prototype_;
  };
  return std::make_shared<Made>(std::move(name), std::move(prototype));
}

// The built-in ones:
//   accuracy        share of observations whose class has the highest score
//   top-K           share of those whose class is among the K highest (top-5)
//   precision       of the observations taken for a class, the share that belongs to it;
//   recall          of the observations of a class, the share taken for it;
//   f1              the harmonic mean of those two; all three: the mean over classes
//   auc             area under the receiver operating characteristic: the chance that an
//                   observation of the class scores higher than one of another, ties by halves. Of
//                   the second of two classes; of several each against the rest, and their mean
//   rmse, mae       image to image: root of the mean squared, and mean absolute difference over all
//                   elements (pixels are 0 to 1)
// A NaN counts as the lowest score; of equal scores the first class is taken. Where precision,
// recall and f1 are 0 / 0 for a class that occurs (is there, or is taken for), they are 0; classes
// that do not occur are left out of the mean, as are from auc's those that all observations or none
// belong to. With nothing to average, and without observations, values are NaN.
//
// By name. Throws InvalidArgument for unknown names, with the nearest valid one.
MetricPtr metric_by_name(const std::string& name);

// Built-in metrics and others in one list. Throws InvalidArgument as metric_by_name(), for two of
// one name, and for what does not fit the problem, naming it.
std::vector<MetricPtr> metrics_for(const std::vector<std::string>& names,
                                   const std::vector<MetricPtr>& own, const MetricProblem& problem);

// The class with the highest score, the first of equal ones; NaN counts as the lowest.
int64_t predicted_class(std::span<const float> scores);

// Whether a built-in metric is a share of observations, which people read as percent.
bool metric_is_share(const std::string& metric);

}  // namespace lockstep
