// Metrics measure the quality of a network over all observations of some data.
//
// A metric creates a state (init). The state adds observations one by one (accumulate), adds the
// state of the observations that follow its own (merge), and returns the value (finish). Parts of
// the data have separate states. The division into parts and the order of merging depend on the
// data only, so values are bitwise equal for any number of threads.
//
// A custom metric is an object with these functions:
//
//   struct MeanTopScore {
//     double sum = 0;
//     int64_t count = 0;
//     void init(const MetricProblem&) {}  // optional; may throw if the problem does not fit
//     void accumulate(const ScoredObservation& o) {
//       sum += *std::max_element(o.scores.begin(), o.scores.end());
//       ++count;
//     }
//     void merge(const MeanTopScore& later) { sum += later.sum, count += later.count; }
//     double finish() const { return sum / static_cast<double>(count); }
//   };
//   options.validation.custom_metrics = {make_metric("mean top score", MeanTopScore{})};
//
// A metric without merge() has one state, which adds all observations in the order of the listing.
// An error, of which the smaller value is the better one, has
// `static constexpr bool smaller_is_better = true;`.
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
#include "lockstep/base/numeric/shape.h"

namespace lockstep {

class Tensor;

// One observation, as passed to metrics.
struct ScoredObservation {
  int64_t index = 0;                   // in the listing
  std::span<const float> scores = {};  // the network's output: probabilities, or an image
  int64_t label = -1;                  // the class; -1 if targets are images
  std::span<const float> target = {};  // image to image: the target; otherwise empty
  // Only for metrics that do not need scores (Metric::needs_scores()), which are empty then: the
  // predicted class of `count` observations that have the same label. Pixels of several images are
  // counted together; `index` is the first of these.
  int64_t predicted = -1;
  int64_t count = 1;
};

// One of several results of a network, a part of its output (see OutputsOptions).
struct MetricPart {
  std::string name;
  int64_t first = 0, count = 0;  // elements of the output
  bool classifies = false;       // the target is 1 for the right class, else 0
};

// Describes what a metric measures.
struct MetricProblem {
  std::vector<std::string> classes = {};  // empty: image to image
  Shape output;                           // of one observation
  std::vector<MetricPart> parts = {};     // empty: the output is one result
};

// A metric's value over some data. NaN if the value is undefined.
struct MetricValue {
  std::string name;
  double value = 0;
  friend bool operator==(const MetricValue&, const MetricValue&) = default;
};

// The state of a metric. Not thread-safe.
class MetricState {
 public:
  virtual ~MetricState() = default;
  virtual void accumulate(const ScoredObservation& observation) = 0;
  // Adds `later`, a state of the same metric and problem for the observations that follow this
  // state's own. Not called if Metric::merges() is false.
  virtual void merge(const MetricState& later) = 0;
  virtual double finish() const = 0;
};

// A metric. Immutable, thread-safe.
class Metric {
 public:
  virtual ~Metric() = default;
  virtual const std::string& name() const = 0;
  // Whether a larger value is the better one.
  virtual bool larger_is_better() const { return true; }
  virtual bool merges() const = 0;
  // Whether it reads scores, not only labels and predicted classes. Pixels are then counted by
  // pairs of classes. A custom metric that needs none has `bool of_classes() const { return true;
  // }`, and reads ScoredObservation::predicted and count.
  virtual bool needs_scores() const { return true; }
  // Creates a state. Throws InvalidArgument if the metric does not fit the problem.
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

// Creates a metric whose states begin as copies of `prototype`; see the top of this file.
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
    bool larger_is_better() const override {
      if constexpr (requires { T::smaller_is_better; }) return !T::smaller_is_better;
      return true;
    }
    bool merges() const override { return MergingMetricObject<T>; }
    bool needs_scores() const override {
      if constexpr (requires { prototype_.of_classes(); }) return !prototype_.of_classes();
      return true;
    }
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

// A built-in metric, for lists and documentation. The metrics of classification compare the scores
// of classes: NaN counts as the lowest score, and of equal scores the first class is predicted. If
// precision, recall, f1, dice or iou is 0 / 0 for a class that occurs or is predicted, it is 0.
// Other classes are left out of the mean over classes. The mean of auc leaves out classes to which
// all observations or none belong. Values are NaN without observations or without a class to
// average.
struct MetricInfo {
  std::string name;       // "accuracy"; with `numbered` it ends in K: "top-K"
  std::string help;       // one line
  bool numbered = false;  // the name of a metric has a number in place of K: "top-5"
  bool images = false;    // measures image to image, otherwise classification
  bool share = false;     // a share of observations, displayed in percent
  bool error = false;     // smaller values are better
  // Creates the metric. `number` is that in its name.
  MetricPtr (*make)(const std::string& name, int64_t number) = nullptr;
};

// All built-in metrics, in the order of documentation. `lockstep reference metrics` prints them.
// Thread-safe.
const std::vector<MetricInfo>& metric_registry();

// The names of those that measure images, or of the others.
std::vector<std::string> metric_names(bool images);

// Returns the metric with a name; "age: rmse" is the metric rmse of the part `age`. Throws
// InvalidArgument for an unknown name; the hint gives the most similar valid one.
MetricPtr metric_by_name(const std::string& name);

// Returns built-in metrics by name, followed by custom metrics. Throws InvalidArgument for unknown
// names as metric_by_name(), for null, for a name that is not printable ASCII or occurs twice, and
// for a metric that does not fit the problem.
std::vector<MetricPtr> metrics_for(const std::vector<std::string>& names,
                                   const std::vector<MetricPtr>& own, const MetricProblem& problem);

// Returns the class with the highest score, the first of equal ones. NaN counts as the lowest
// score.
int64_t predicted_class(std::span<const float> scores);

// The same for each position of maps (pixel): `scores` has a map for each of `classes`, each with
// as many positions as `predicted`.
void predicted_classes(const float* scores, int64_t classes, std::span<int32_t> predicted);

// Whether a built-in metric is a share of observations, which is displayed in percent.
bool metric_is_share(const std::string& metric);

// Whether larger values of "loss", of a built-in metric or of one of `own` are better. Of other
// names it is so unless they say "loss" or "error". Thread-safe.
bool larger_is_better(const std::string& metric, const std::vector<MetricPtr>& own = {});

// ---- Sequences of tokens that were read, compared with those that are right ----

// The fewest tokens to insert, delete or replace that turn one sequence into the other (Levenshtein
// 1966; MATLAB's editDistance). Thread-safe.
int64_t edit_distance(std::span<const int32_t> a, std::span<const int32_t> b);

// Edit distances divided by the tokens that are right: the character error rate (CER) where tokens
// are characters, the word error rate (WER) where they are words. May be above 1.
struct ErrorRate {
  int64_t errors = 0, tokens = 0;

  void add(std::span<const int32_t> read, std::span<const int32_t> right) {
    errors += edit_distance(read, right);
    tokens += std::ssize(right);
  }
  void merge(const ErrorRate& later) { errors += later.errors, tokens += later.tokens; }
  // NaN without tokens.
  double value() const;
};

// The tokens of each sequence by the best path of connectionist temporal classification: the class
// that predicted_class() finds in each valid step, without repetitions, then without blanks.
// scores: n x steps x classes, f32; lengths: n of i32. Throws InvalidArgument if they do not fit.
// Thread-safe.
std::vector<std::vector<int32_t>> ctc_greedy_decode(const Tensor& scores, const Tensor& lengths,
                                                    int32_t blank = 0);

}  // namespace lockstep
