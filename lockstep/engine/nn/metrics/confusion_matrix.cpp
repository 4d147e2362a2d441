#include "lockstep/engine/nn/metrics/confusion_matrix.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

double ratio(int64_t part, int64_t whole, bool occurs) {
  if (!occurs) return std::nan("");
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

}  // namespace

double ClassCounts::precision() const { return ratio(right, predicted, observed + predicted > 0); }
double ClassCounts::recall() const { return ratio(right, observed, observed + predicted > 0); }
double ClassCounts::f1() const {
  return ratio(2 * right, observed + predicted, observed + predicted > 0);
}

ConfusionMatrix::ConfusionMatrix(std::vector<std::string> names)
    : classes(std::move(names)), counts(classes.size() * classes.size()) {}

int64_t ConfusionMatrix::count(int64_t observed, int64_t predicted) const {
  if (observed < 0 || observed >= size() || predicted < 0 || predicted >= size()) {
    throw InvalidArgument("[confusion] classes are 0 to " + std::to_string(size() - 1) +
                          ", received " + std::to_string(observed) + " and " +
                          std::to_string(predicted));
  }
  return counts[static_cast<size_t>(observed * size() + predicted)];
}

void ConfusionMatrix::add(int64_t observed, int64_t predicted) {
  count(observed, predicted);  // checks the class numbers
  ++counts[static_cast<size_t>(observed * size() + predicted)];
}

int64_t ConfusionMatrix::total() const {
  int64_t sum = 0;
  for (int64_t n : counts) sum += n;
  return sum;
}

ClassCounts ConfusionMatrix::of_class(int64_t c) const {
  ClassCounts of;
  of.right = count(c, c);
  for (int64_t other = 0; other < size(); ++other) {
    of.observed += count(c, other);
    of.predicted += count(other, c);
  }
  return of;
}

nlohmann::ordered_json ConfusionMatrix::to_json() const {
  using json = nlohmann::ordered_json;
  json rows = json::array(), recall = json::array(), precision = json::array();
  for (int64_t c = 0; c < size(); ++c) {
    json row = json::array();
    for (int64_t p = 0; p < size(); ++p) row.push_back(count(c, p));
    rows.push_back(std::move(row));
    const ClassCounts of = of_class(c);
    const auto number = [](double value) { return std::isfinite(value) ? json(value) : json(); };
    recall.push_back(number(of.recall()));
    precision.push_back(number(of.precision()));
  }
  return {{"classes", classes},
          {"counts", std::move(rows)},
          {"recall", std::move(recall)},
          {"precision", std::move(precision)}};
}

}  // namespace lockstep
