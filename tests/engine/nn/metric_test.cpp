#include "lockstep/engine/nn/metrics/metric.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>

#include "lockstep/base/error.h"
#include "lockstep/engine/nn/metrics/confusion_matrix.h"

namespace lockstep {
namespace {

constexpr float nan_score = std::numeric_limits<float>::quiet_NaN();

struct Scored {
  std::vector<float> scores;
  int64_t label;
};

std::vector<std::string> names(int64_t classes) {
  std::vector<std::string> all;
  for (int64_t c = 0; c < classes; ++c) all.push_back("class " + std::to_string(c));
  return all;
}

// The value over `data`, in parts of `part` observations that are merged in order.
double value_of(const std::string& metric, int64_t classes, const std::vector<Scored>& data,
                size_t part = 1000) {
  const MetricPtr m = metric_by_name(metric);
  const MetricProblem problem{names(classes), Shape{classes}};
  auto state = m->init(problem);
  for (size_t begin = 0; begin < data.size(); begin += part) {
    auto own = m->init(problem);
    for (size_t i = begin; i < std::min(begin + part, data.size()); ++i) {
      own->accumulate({static_cast<int64_t>(i), data[i].scores, data[i].label, {}});
    }
    state->merge(*own);
  }
  return state->finish();
}

template <class Call>
std::string metric_error(Call call) {
  try {
    call();
  } catch (const InvalidArgument& error) {
    return std::string(error.what()) + " | " + error.hint();
  }
  return "nothing was thrown";
}

// Three classes; predicted 0, 0, 1, 1, 0 (a tie: the first), 1.
const std::vector<Scored> six{{{0.8f, 0.1f, 0.1f}, 0}, {{0.5f, 0.4f, 0.1f}, 1},
                              {{0.2f, 0.6f, 0.2f}, 1}, {{0.1f, 0.5f, 0.4f}, 2},
                              {{0.4f, 0.4f, 0.2f}, 1}, {{0.3f, 0.4f, 0.3f}, 0}};

TEST(Metric, PerplexityIsTheExponentialOfTheMeanSurprise) {
  const double expected = std::exp(-(std::log(0.8) + std::log(0.4) + std::log(0.6) + std::log(0.4) +
                                     std::log(0.4) + std::log(0.3)) /
                                   6);
  EXPECT_NEAR(value_of("perplexity", 3, six), expected, 1e-6 * expected);
  EXPECT_NEAR(value_of("perplexity", 3, six, 1), expected, 1e-6 * expected);
  EXPECT_DOUBLE_EQ(value_of("perplexity", 4, {{{0.25f, 0.25f, 0.25f, 0.25f}, 3}}), 4);
  EXPECT_NEAR(value_of("perplexity", 2, {{{0, 1}, 0}}), std::exp(126 * std::log(2.0)), 1e30);
  EXPECT_TRUE(std::isnan(value_of("perplexity", 2, {})));
  EXPECT_THROW(metric_by_name("perplexity")->init({{}, Shape{3}}), InvalidArgument);
}

TEST(Metrics, SharesByHand) {
  EXPECT_EQ(value_of("accuracy", 3, six), 2.0 / 6);
  EXPECT_EQ(value_of("top-1", 3, six), 2.0 / 6);
  // Within the first two: all but the last, where class 0 ties with class 2 and comes before it.
  EXPECT_EQ(value_of("top-2", 3, six), 6.0 / 6);
  EXPECT_EQ(value_of("top-2", 3, {{{0.5f, 0.25f, 0.25f}, 2}}), 0);
  EXPECT_EQ(value_of("top-3", 3, six), 1);
  // Class 0: 1 of 3 predictions, 1 of 2 observations; class 1: 1 of 3, 1 of 3; class 2: 0 of none.
  EXPECT_DOUBLE_EQ(value_of("precision", 3, six), (1.0 / 3 + 1.0 / 3 + 0) / 3);
  EXPECT_DOUBLE_EQ(value_of("recall", 3, six), (1.0 / 2 + 1.0 / 3 + 0) / 3);
  EXPECT_DOUBLE_EQ(value_of("f1", 3, six), (2.0 / 5 + 2.0 / 6 + 0) / 3);
  EXPECT_DOUBLE_EQ(value_of("iou", 3, six), (1.0 / 4 + 1.0 / 5 + 0) / 3);
  EXPECT_EQ(value_of("dice", 3, six), value_of("f1", 3, six));
}

// scikit-learn 1.9.1: jaccard_score(observed, predicted, average="macro") of these labels.
TEST(Metrics, IntersectionOverUnionIsScikitLearns) {
  std::vector<Scored> data;
  for (int64_t i = 0; i < 1000; ++i) {
    const int64_t observed = i * i % 7 % 5;
    const auto predicted = static_cast<size_t>(i % 3 == 0 ? observed : i * 11 % 13 % 5);
    std::vector<float> scores(5, 0.0f);
    scores[predicted] = 1;
    data.push_back({scores, observed});
  }
  EXPECT_NEAR(value_of("iou", 5, data), 0.2595390404231447, 1e-15);
  EXPECT_EQ(value_of("iou", 5, data, 7), value_of("iou", 5, data));
}

TEST(Metrics, ClassesThatDoNotOccurAreLeftOut) {
  // Class 1 has observations but no predictions, class 2 has predictions but no observations, class
  // 3 has neither.
  const std::vector<Scored> data{{{0.9f, 0, 0, 0}, 0}, {{0, 0, 0.9f, 0}, 1}};
  EXPECT_DOUBLE_EQ(value_of("precision", 4, data), 1.0 / 3);
  EXPECT_DOUBLE_EQ(value_of("recall", 4, data), 1.0 / 3);
  EXPECT_DOUBLE_EQ(value_of("f1", 4, data), 1.0 / 3);
  EXPECT_DOUBLE_EQ(value_of("iou", 4, data), 1.0 / 3);
}

TEST(Metrics, OneClassAndNoObservations) {
  const std::vector<Scored> one{{{1.0f}, 0}, {{0.5f}, 0}};
  for (const char* name : {"accuracy", "top-1", "precision", "recall", "f1", "iou", "dice"}) {
    EXPECT_EQ(value_of(name, 1, one), 1) << name;
  }
  for (const char* name :
       {"accuracy", "top-2", "precision", "recall", "f1", "iou", "dice", "auc"}) {
    EXPECT_TRUE(std::isnan(value_of(name, 3, {}))) << name;
  }
  EXPECT_NE(metric_error([&] { value_of("auc", 1, one); }).find("needs two classes, there is 1"),
            std::string::npos);
}

TEST(Metrics, NotANumberIsTheLowestScore) {
  EXPECT_EQ(predicted_class(std::vector<float>{nan_score, 0.1f, 0.1f}), 1);
  EXPECT_EQ(predicted_class(std::vector<float>{nan_score, nan_score}), 0);
  const std::vector<Scored> data{{{nan_score, 0.1f, 0.2f}, 0}};
  EXPECT_EQ(value_of("accuracy", 3, data), 0);
  EXPECT_EQ(value_of("top-2", 3, data), 0);
  EXPECT_EQ(value_of("top-3", 3, data), 1);
  EXPECT_EQ(value_of("auc", 2, {{{0, nan_score}, 1}, {{0, 0.1f}, 0}}), 0);
}

TEST(Metrics, AreaUnderTheCurveByHand) {
  // Scores of the second class: positives 0.9, 0.6, 0.6; negatives 0.6, 0.3. Six pairs: four won,
  // two tied.
  const std::vector<Scored> data{{{0.1f, 0.9f}, 1},
                                 {{0.4f, 0.6f}, 0},
                                 {{0.4f, 0.6f}, 1},
                                 {{0.7f, 0.3f}, 0},
                                 {{0.4f, 0.6f}, 1}};
  EXPECT_EQ(value_of("auc", 2, data), 5.0 / 6);
  EXPECT_EQ(value_of("auc", 2, {{{0, 0.5f}, 0}, {{0, 0.5f}, 1}}), 0.5);
  EXPECT_TRUE(std::isnan(value_of("auc", 2, {{{0, 0.5f}, 1}}))) << "no observation of the other";
  // Class 0: 0.8 and 0.3 against 0.5, 0.2, 0.1, 0.4. Class 1: 0.4, 0.6, 0.4 against 0.1, 0.5, 0.4.
  // Class 2: 0.4 against lower ones.
  const double expected = (6.0 / 8 + (1.5 + 3 + 1.5) / 9 + 5.0 / 5) / 3;
  EXPECT_DOUBLE_EQ(value_of("auc", 3, six), expected);
  // A class without observations is left out of the mean.
  std::vector<Scored> without(six);
  without.erase(without.begin() + 3);
  EXPECT_DOUBLE_EQ(value_of("auc", 3, without), ((3 + 1.0) / 6 + (1.5 + 2 + 1.5) / 6) / 2);
}

// Against other forms of the definitions, on random scores with many ties.
TEST(Metrics, AgreeWithDefinitionsAndDoNotDependOnParts) {
  std::mt19937 random(7);
  constexpr int64_t classes = 4;
  std::vector<Scored> data(300);
  for (auto& d : data) {
    for (int64_t c = 0; c < classes; ++c) d.scores.push_back(static_cast<float>(random() % 6));
    d.label = static_cast<int64_t>(random() % 3);  // class 3 has no observation
  }
  double areas = 0;
  for (int64_t c = 0; c < 3; ++c) {
    double won = 0, pairs = 0;
    for (const auto& p : data) {
      for (const auto& n : data) {
        if (p.label != c || n.label == c) continue;
        const float a = p.scores[static_cast<size_t>(c)], b = n.scores[static_cast<size_t>(c)];
        won += a > b ? 1 : a == b ? 0.5 : 0;
        ++pairs;
      }
    }
    areas += won / pairs;
  }
  EXPECT_DOUBLE_EQ(value_of("auc", classes, data), areas / 3);
  double second = 0;
  for (const auto& d : data) {
    std::vector<int> order{0, 1, 2, 3};
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
      return d.scores[static_cast<size_t>(a)] > d.scores[static_cast<size_t>(b)];
    });
    second += order[0] == d.label || order[1] == d.label;
  }
  EXPECT_EQ(value_of("top-2", classes, data), second / 300);
  for (const char* name :
       {"accuracy", "top-2", "precision", "recall", "f1", "iou", "dice", "auc"}) {
    for (const size_t part : {1, 7, 64}) {
      EXPECT_EQ(value_of(name, classes, data, part), value_of(name, classes, data)) << name;
    }
  }
}

TEST(Metrics, OfImages) {
  const MetricProblem problem{{}, Shape{1, 1, 2}};
  const std::vector<float> made_a{0.5f, 1}, wanted_a{0, 1}, made_b{0, 0.25f}, wanted_b{1, 0.5f};
  const double squares = 0.25 + 0 + 1 + 0.0625, distances = 0.5 + 0 + 1 + 0.25;
  for (const auto& [name, expected] :
       {std::pair{"rmse", std::sqrt(squares / 4)}, std::pair{"mae", distances / 4}}) {
    const MetricPtr metric = metric_by_name(name);
    const auto state = metric->init(problem), later = metric->init(problem);
    EXPECT_TRUE(std::isnan(state->finish()));
    state->accumulate({0, made_a, -1, wanted_a});
    later->accumulate({1, made_b, -1, wanted_b});
    state->merge(*later);
    EXPECT_DOUBLE_EQ(state->finish(), expected) << name;
  }
}

struct MergingCount {
  int64_t n = 0;
  void accumulate(const ScoredObservation&) { ++n; }
  void merge(const MergingCount& later) { n += later.n; }
  double finish() const { return static_cast<double>(n); }
};
struct OrderedCount {
  int64_t n = 0, offset = 0;
  void init(const MetricProblem& problem) { offset = problem.output.elements(); }
  void accumulate(const ScoredObservation&) { ++n; }
  double finish() const { return static_cast<double>(n + offset); }
};

TEST(Metrics, CustomMetrics) {
  const MetricProblem problem{names(2), Shape{2}};
  const MetricPtr merging = make_metric("merging", MergingCount{10});
  const MetricPtr ordered = make_metric("ordered", OrderedCount{});
  EXPECT_TRUE(merging->merges());
  EXPECT_FALSE(ordered->merges());
  const auto state = merging->init(problem);
  state->accumulate({});
  state->merge(*merging->init(problem));
  EXPECT_EQ(state->finish(), 21);
  const auto other = ordered->init(problem);
  EXPECT_EQ(other->finish(), 2);
  EXPECT_THROW(other->merge(*other), InvalidArgument);
}

TEST(Metrics, WrongOnesAreRefusedByName) {
  const MetricProblem classes{names(3), Shape{3}}, images{{}, Shape{1, 2, 2}};
  const auto refusal = [](std::vector<std::string> wanted, const MetricProblem& problem,
                          std::vector<MetricPtr> own = {}) {
    return metric_error([&] { metrics_for(wanted, own, problem); });
  };
  const auto has = [](const std::string& text, const char* part) {
    return text.find(part) != std::string::npos;
  };
  EXPECT_EQ(refusal({"accuracy", "top-3", "precision", "recall", "f1", "auc"}, classes),
            "nothing was thrown");
  EXPECT_EQ(refusal({"rmse", "mae"}, images), "nothing was thrown");
  EXPECT_TRUE(has(refusal({"presicion"}, classes), "did you mean `precision`?"));
  for (const char* name :
       {"top-0", "top-", "top--1", "top-05", "top-5x", "top-99999999999999999999"}) {
    EXPECT_TRUE(has(refusal({name}, classes), "unknown metric `top-")) << name;
  }
  EXPECT_TRUE(has(refusal({"top-4"}, classes), "top-4 needs at least 4 classes, there are 3"));
  for (const char* name :
       {"accuracy", "top-2", "precision", "recall", "f1", "iou", "dice", "auc"}) {
    EXPECT_TRUE(has(refusal({name}, images), "is a classification metric")) << name;
  }
  EXPECT_TRUE(has(refusal({"rmse"}, classes), "rmse is a regression metric"));
  EXPECT_TRUE(has(refusal({"mae"}, classes), "mae is a regression metric"));
  EXPECT_TRUE(has(refusal({"f1", "auc", "f1"}, classes), "`f1` is given twice"));
  EXPECT_TRUE(has(refusal({"f1"}, classes, {make_metric("f1", MergingCount{})}), "twice"));
  EXPECT_TRUE(has(refusal({}, classes, {make_metric("", MergingCount{})}), "printable"));
  EXPECT_TRUE(has(refusal({}, classes, {nullptr}), "null"));
}

TEST(Metrics, Shares) {
  for (const char* name : {"accuracy", "top-5", "precision", "recall"})
    EXPECT_TRUE(metric_is_share(name));
  for (const char* name : {"f1", "iou", "dice", "auc", "rmse", "top-", "other"})
    EXPECT_FALSE(metric_is_share(name));
}

TEST(Metrics, AllOfTheRegistryAreFoundByName) {
  for (const MetricInfo& info : metric_registry()) {
    std::string name = info.name;
    if (info.numbered) {
      EXPECT_THROW(metric_by_name(name), InvalidArgument) << name;
      name.replace(name.size() - 1, 1, "2");
    }
    const MetricProblem fits =
        info.images ? MetricProblem{{}, Shape{1, 2, 2}} : MetricProblem{names(3), Shape{3}};
    const MetricPtr metric = metric_by_name(name);
    EXPECT_EQ(metric->name(), name);
    EXPECT_TRUE(metric->merges()) << name;
    EXPECT_NE(metric->init(fits), nullptr) << name;
    EXPECT_EQ(metric_is_share(name), info.share) << name;
    EXPECT_FALSE(info.help.empty()) << name;
  }
}

TEST(Confusion, CountsRowsAndColumns) {
  ConfusionMatrix matrix(names(3));
  for (const auto& s : six) matrix.add(s.label, predicted_class(s.scores));
  using Cell = ConfusionMatrix::Cell;
  EXPECT_EQ(matrix.cells(),
            (std::vector<Cell>{{0, 0, 1}, {0, 1, 1}, {1, 0, 2}, {1, 1, 1}, {2, 1, 1}}));
  EXPECT_EQ(matrix.worst_pairs(2), (std::vector<Cell>{{1, 0, 2}, {0, 1, 1}}));
  EXPECT_EQ(matrix.worst_classes(1), std::vector<int64_t>{1});
  EXPECT_EQ(matrix.worst_classes(2), (std::vector<int64_t>{0, 1}));
  EXPECT_EQ(matrix.total(), 6);
  EXPECT_EQ(matrix.count(1, 0), 2);
  EXPECT_EQ(matrix.of_class(0).recall(), 0.5);
  EXPECT_EQ(matrix.of_class(0).precision(), 1.0 / 3);
  EXPECT_EQ(matrix.of_class(0).f1(), 2.0 / 5);
  EXPECT_EQ(matrix.of_class(0).iou(), 1.0 / 4);
  EXPECT_EQ(matrix.of_class(2).precision(), 0) << "there, never taken";
  EXPECT_EQ(matrix.of_class(2).recall(), 0);
  EXPECT_THROW(matrix.add(0, 3), InvalidArgument);
  EXPECT_THROW(matrix.add(-1, 0), InvalidArgument);
  EXPECT_EQ(matrix.total(), 6);

  ConfusionMatrix empty(names(2));
  empty.add(0, 0);
  EXPECT_TRUE(std::isnan(empty.of_class(1).recall()));
  EXPECT_EQ(empty.to_json().dump(),
            R"({"classes":["class 0","class 1"],"counts":[[1,0],[0,0]],"recall":[1.0,null],)"
            R"("precision":[1.0,null]})");
}

// A table of all pairs would have 288 MB, and its text as much again.
TEST(Confusion, OfManyClassesHasThePairsThatOccur) {
  ConfusionMatrix matrix(names(6000));
  for (int64_t c = 0; c < 6000; ++c) matrix.add(c, c % 5 == 0 ? 0 : c);
  EXPECT_EQ(matrix.cells().size(), 6000u);
  EXPECT_EQ(matrix.of_class(0).predicted, 1200);
  const auto json = matrix.to_json();
  EXPECT_EQ(json.at("version"), 2);
  EXPECT_FALSE(json.contains("counts"));
  EXPECT_EQ(json.at("cells").at("observed").size(), 6000u);
  EXPECT_EQ(json.at("cells").at("predicted")[5], 0);
  EXPECT_EQ(json.at("cells").at("count")[5], 1);
  EXPECT_EQ(json.at("recall")[5], 0.0);
  EXPECT_LT(json.dump().size(), 500'000u);
  EXPECT_TRUE(ConfusionMatrix(names(256)).to_json().contains("counts"));
  EXPECT_TRUE(ConfusionMatrix(names(257)).to_json().contains("cells"));
}

}  // namespace
}  // namespace lockstep
