// Which classes are taken for which.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace lockstep {

// How often a class occurred, was predicted, and both at once. Ratios over nothing are 0 where the
// class occurred or was predicted, else NaN.
struct ClassCounts {
  int64_t observed = 0;   // observations of the class
  int64_t predicted = 0;  // observations taken for it
  int64_t right = 0;      // both

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
  // Throws InvalidArgument for a class that is none.
  void add(int64_t observed, int64_t predicted);
  int64_t total() const;
  // The summaries of a class: of its row (recall) and its column (precision).
  ClassCounts of_class(int64_t c) const;

  // {"classes": [...], "counts": [[...], ...], "recall": [...], "precision": [...]}, where counts
  // has a row for each true class; null stands for what has no value.
  nlohmann::ordered_json to_json() const;

  friend bool operator==(const ConfusionMatrix&, const ConfusionMatrix&) = default;
};

}  // namespace lockstep
