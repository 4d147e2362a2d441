#include "lockstep/train/loop/objective.h"

#include <cmath>

#include "lockstep/base/error.h"

namespace lockstep {

Objective::Objective(const ValidationOptions& options)
    : metric_(options.objective),
      larger_(larger_is_better(options.objective, options.custom_metrics)) {}

double Objective::of(const ValidationRecord& validation) const {
  if (metric_ == "loss") return validation.loss;
  if (metric_ == "accuracy") return validation.accuracy;
  for (const MetricValue& m : validation.metrics) {
    if (m.name == metric_) return m.value;
  }
  throw InvalidArgument("[training] the validation after iteration " +
                            std::to_string(validation.iteration) + " has no metric `" + metric_ +
                            "`, which is the objective",
                        "name it in training.metrics");
}

std::vector<ObjectiveValue> Objective::of(const std::vector<ValidationRecord>& validations) const {
  std::vector<ObjectiveValue> all;
  for (const ValidationRecord& v : validations) all.push_back({v.iteration, of(v)});
  return all;
}

bool Objective::better(double a, double b) const {
  if (!std::isfinite(a) || !std::isfinite(b)) return std::isfinite(a);
  return larger_ ? a > b : a < b;
}

const ValidationRecord* Objective::best(const std::vector<ValidationRecord>& validations) const {
  const ValidationRecord* found = nullptr;
  for (const ValidationRecord& v : validations) {
    if (better(of(v), found ? of(*found) : std::nan(""))) found = &v;
  }
  return found;
}

}  // namespace lockstep
