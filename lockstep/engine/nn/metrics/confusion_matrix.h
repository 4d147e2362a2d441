// Confusion matrix: counts of true and predicted classes.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

// Counts for one class. Ratios with a denominator of 0 are 0 if the class occurred or was
// predicted, otherwise NaN.
struct ClassCounts {
  int64_t observed = 0;   // observations of the class
  int64_t predicted = 0;  // observations predicted as the class
  int64_t right = 0;      // observations of the class that were predicted as the class

  // Observations of the class, or predicted as it, that were not both.
  int64_t errors() const { return observed + predicted - 2 * right; }
  double precision() const;
  double recall() const;
  double f1() const;
  // Intersection over union: right, of the observations of the class or predicted as it.
  double iou() const;

  friend bool operator==(const ClassCounts&, const ClassCounts&) = default;
};

// Holds the counts above 0 alone, so its memory is that of the classes and of the pairs that occur.
struct ConfusionMatrix {
  struct Cell {
    int64_t observed = 0, predicted = 0;  // true class and predicted class
    int64_t count = 0;

    friend bool operator==(const Cell&, const Cell&) = default;
  };
  // to_json() gives all counts up to this number of classes.
  static constexpr int64_t kMostInFull = 256;

  std::vector<std::string> classes;

  ConfusionMatrix() = default;
  explicit ConfusionMatrix(std::vector<std::string> names);

  int64_t size() const { return static_cast<int64_t>(classes.size()); }
  int64_t count(int64_t observed, int64_t predicted) const;
  // Adds observations. Throws InvalidArgument for a class number out of range.
  void add(int64_t observed, int64_t predicted, int64_t n = 1);
  int64_t total() const;
  // Counts of one class, from its row (recall) and its column (precision).
  const ClassCounts& of_class(int64_t c) const;
  // The counts above 0, by true class, then by predicted class.
  std::vector<Cell> cells() const;
  // The most frequent errors, no more than asked for, the most frequent first.
  std::vector<Cell> worst_pairs(size_t most) const;
  // The classes with the most errors, no more than asked for, in the order of classes.
  std::vector<int64_t> worst_classes(size_t most) const;

  // {"classes": [...], "counts": [[...], ...], "recall": [...], "precision": [...]}. `counts` has a
  // row for each true class. An undefined value is null. With more than kMostInFull classes there
  // are {"version": 2, "classes": [...], "cells": {"observed": [...], "predicted": [...],
  // "count": [...]}, "recall": ..., "precision": ...}, with the numbers of the classes of cells().
  nlohmann::ordered_json to_json() const;

  friend bool operator==(const ConfusionMatrix&, const ConfusionMatrix&) = default;

 private:
  void check(int64_t observed, int64_t predicted) const;

  std::map<std::pair<int64_t, int64_t>, int64_t> counts_;  // above 0
  std::vector<ClassCounts> of_;                            // by class
};

}  // namespace lockstep
