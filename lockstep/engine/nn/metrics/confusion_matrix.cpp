#include "lockstep/engine/nn/metrics/confusion_matrix.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

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
double ClassCounts::iou() const {
  return ratio(right, observed + predicted - right, observed + predicted > 0);
}

ConfusionMatrix::ConfusionMatrix(std::vector<std::string> names)
    : classes(std::move(names)), of_(classes.size()) {}

void ConfusionMatrix::check(int64_t observed, int64_t predicted) const {
  if (observed >= 0 && observed < size() && predicted >= 0 && predicted < size()) return;
  throw InvalidArgument("[confusion] classes are 0 to " + std::to_string(size() - 1) +
                        ", received " + std::to_string(observed) + " and " +
                        std::to_string(predicted));
}

int64_t ConfusionMatrix::count(int64_t observed, int64_t predicted) const {
  check(observed, predicted);
  const auto found = counts_.find({observed, predicted});
  return found == counts_.end() ? 0 : found->second;
}

void ConfusionMatrix::add(int64_t observed, int64_t predicted, int64_t n) {
  check(observed, predicted);
  if (n == 0) return;
  counts_[{observed, predicted}] += n;
  of_[static_cast<size_t>(observed)].observed += n;
  of_[static_cast<size_t>(predicted)].predicted += n;
  if (observed == predicted) of_[static_cast<size_t>(observed)].right += n;
}

int64_t ConfusionMatrix::total() const {
  int64_t sum = 0;
  for (const ClassCounts& of : of_) sum += of.observed;
  return sum;
}

const ClassCounts& ConfusionMatrix::of_class(int64_t c) const {
  check(c, c);
  return of_[static_cast<size_t>(c)];
}

std::vector<ConfusionMatrix::Cell> ConfusionMatrix::cells() const {
  std::vector<Cell> all;
  all.reserve(counts_.size());
  for (const auto& [pair, n] : counts_) all.push_back({pair.first, pair.second, n});
  return all;
}

std::vector<ConfusionMatrix::Cell> ConfusionMatrix::worst_pairs(size_t most) const {
  std::vector<Cell> errors = cells();
  std::erase_if(errors, [](const Cell& c) { return c.observed == c.predicted; });
  std::ranges::stable_sort(errors, std::ranges::greater(), &Cell::count);
  errors.resize(std::min(errors.size(), most));
  return errors;
}

std::vector<int64_t> ConfusionMatrix::worst_classes(size_t most) const {
  std::vector<int64_t> order(of_.size());
  std::iota(order.begin(), order.end(), int64_t{0});
  if (order.size() <= most) return order;
  std::ranges::stable_sort(order, std::ranges::greater(),
                           [&](int64_t c) { return of_[static_cast<size_t>(c)].errors(); });
  order.resize(most);
  std::ranges::sort(order);
  return order;
}

nlohmann::ordered_json ConfusionMatrix::to_json() const {
  using json = nlohmann::ordered_json;
  json result = json::object();
  if (size() > kMostInFull) result["version"] = 2;
  result["classes"] = classes;
  if (size() > kMostInFull) {
    json observed = json::array(), predicted = json::array(), count = json::array();
    for (const auto& [pair, n] : counts_) {
      observed.push_back(pair.first);
      predicted.push_back(pair.second);
      count.push_back(n);
    }
    result["cells"] = {{"observed", std::move(observed)},
                       {"predicted", std::move(predicted)},
                       {"count", std::move(count)}};
  } else {
    const json row = json::array_t(classes.size(), 0);
    json rows = json::array_t(classes.size(), row);
    for (const auto& [pair, n] : counts_) {
      rows[static_cast<size_t>(pair.first)][static_cast<size_t>(pair.second)] = n;
    }
    result["counts"] = std::move(rows);
  }
  json recall = json::array(), precision = json::array();
  const auto number = [](double value) { return std::isfinite(value) ? json(value) : json(); };
  for (const ClassCounts& of : of_) {
    recall.push_back(number(of.recall()));
    precision.push_back(number(of.precision()));
  }
  result["recall"] = std::move(recall);
  result["precision"] = std::move(precision);
  return result;
}

}  // namespace lockstep
