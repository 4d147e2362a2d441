// What validations are compared by.
#pragma once

#include <string>
#include <vector>

#include "lockstep/train/options/options.h"
#include "lockstep/train/records/observer.h"

namespace lockstep {

// Thread-safe.
class Objective {
 public:
  explicit Objective(const ValidationOptions& options);

  const std::string& metric() const { return metric_; }
  // Throws InvalidArgument if the validation does not have the metric.
  double of(const ValidationRecord& validation) const;
  std::vector<ObjectiveValue> of(const std::vector<ValidationRecord>& validations) const;
  // Whether `a` is better than `b`. What is not a finite number is never better, and every finite
  // number is better than it.
  bool better(double a, double b) const;
  // The best of the validations, the first of equal ones; null if no objective is finite.
  const ValidationRecord* best(const std::vector<ValidationRecord>& validations) const;

 private:
  const std::string metric_;
  const bool larger_;
};

}  // namespace lockstep
