// Confusion matrix: counts of true and predicted classes.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace lockstep {

// Counts for one class. Ratios with a denominator of 0 are 0 if the class occurred or was
// predicted, otherwise NaN.
struct ClassCounts {
  int64_t observed = 0;   // observations of the class
  int64_t predicted = 0;  // observations predicted as the class
  int64_t right = 0;      // observations of the class that were predicted as the class

  double precision() const;
  double recall() const;
  double f1() const;
};

struct ConfusionMatrix {
  std::vector<std::string> classes;
  std::vector<int64_t> counts;  // true class x predicted class, row-major

  ConfusionMatrix() = default;
  explicit ConfusionMatrix(std::vector<std::string> names);

  int64_t size() const { return static_cast<int64_t>(classes.size()); }
  int64_t count(int64_t observed, int64_t predicted) const;
  // Adds one observation. Throws InvalidArgument for a class number out of range.
  void add(int64_t observed, int64_t predicted);
  int64_t total() const;
  // Counts of one class, from its row (recall) and its column (precision).
  ClassCounts of_class(int64_t c) const;

  // {"classes": [...], "counts": [[...], ...], "recall": [...], "precision": [...]}. `counts` has a
  // row for each true class. An undefined value is null.
  nlohmann::ordered_json to_json() const;

  friend bool operator==(const ConfusionMatrix&, const ConfusionMatrix&) = default;
};

}  // namespace lockstep
