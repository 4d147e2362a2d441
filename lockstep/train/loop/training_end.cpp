#include "lockstep/train/loop/training_end.h"

#include <cmath>

#include "lockstep/base/error.h"
#include "lockstep/train/loop/objective.h"
#include "lockstep/train/options/options.h"

namespace lockstep {

int64_t patience_ends(const std::vector<ValidationRecord>& validations,
                      const ValidationOptions& options) {
  if (options.patience == 0) return 0;
  const Objective objective(options);
  int64_t without = 0;
  double best = std::nan("");
  for (const auto& [iteration, value] : objective.of(validations)) {
    const bool better = objective.better(value, best);
    without = better ? 0 : without + 1;
    if (better) best = value;
    if (without >= options.patience) return iteration;
  }
  return 0;
}

void check_end_not_passed(const TrainingOptions& options, int64_t iterations_per_epoch,
                          int64_t iteration, const std::vector<ValidationRecord>& validations,
                          const std::string& folder) {
  const auto check = [&](const char* option, int64_t value, int64_t end) {
    if (end == 0 || end >= iteration) return;
    throw InvalidArgument("[training] " + std::string(option) + " = " + std::to_string(value) +
                              " ends the training after iteration " + std::to_string(end) +
                              ", and " + folder + " continues after iteration " +
                              std::to_string(iteration),
                          "raise it, or train again into another folder");
  };
  check("max_epochs", options.max_epochs, iterations_per_epoch * options.max_epochs);
  check("max_iterations", options.max_iterations, options.max_iterations);
  check("validation_patience", options.validation.patience,
        patience_ends(validations, options.validation));
}

}  // namespace lockstep
