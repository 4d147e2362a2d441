// Methods of sweeps: how trials are chosen, and which of them go on.
//
// A sweep is a fixed number of decisions. A decision begins trials and sets goals: how far trials
// are to run. Each decision states in advance which earlier decisions' results it needs, and is
// taken once all of these are known. It is a pure function of them, so a sweep has the same trials
// for any number of workers, and whichever trial reports first.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/runs/jobs/sweep_table.h"

namespace lockstep {

// The state of a trial at the goal of an earlier decision.
struct RankedTrial {
  int64_t trial = 0;
  double value = 0;     // of the metric; NaN if it failed
  bool failed = false;  // it diverged, cannot be built or was stopped, so it cannot go on
  const TrialParameters* parameters = nullptr;
};

// The results of the goals of one decision, best first. Equal values: the lower number first.
// Failed trials come last.
struct DecisionResults {
  int64_t decision = 0;
  std::vector<RankedTrial> trials = {};
};

struct SweepDecision {
  struct Start {
    int64_t trial = 0;  // its number, from 1; numbers are given in order
    TrialParameters parameters = {};
  };
  struct Goal {
    int64_t trial = 0;
    int64_t budget = 0;  // in total: epochs of a training; the meaning of a function's budget
  };
  std::string what = {};  // for people: "rung 2 of 3"
  std::vector<Start> starts = {};
  std::vector<Goal> goals = {};      // of trials that start here or earlier, lower numbers first
  std::vector<int64_t> pruned = {};  // trials that end here, lower numbers first
};

// Functions are const and thread-safe. Results depend on the arguments and the method's own options
// alone.
class SweepMethod {
 public:
  virtual ~SweepMethod() = default;
  virtual int64_t decisions() const = 0;
  // The decisions before `decision`, in ascending order, whose results decide() receives.
  virtual std::vector<int64_t> needs(int64_t decision) const = 0;
  // `seen`: the results of needs(), in this order.
  virtual SweepDecision decide(int64_t decision,
                               const std::vector<DecisionResults>& seen) const = 0;
};
using SweepMethodPtr = std::shared_ptr<const SweepMethod>;

// The method that the options name. `budget`: of a complete trial (max_epochs). Throws
// InvalidArgument for options that do not fit.
SweepMethodPtr make_sweep_method(const SweepOptions& options, int64_t budget);

// The budgets at which trials are compared, up to `budget`. Throws InvalidArgument for a rung
// beyond it.
std::vector<int64_t> rungs_of(const SweepOptions& options, int64_t budget);

// Tree-structured Parzen estimator (Bergstra et al. 2011), see tpe.cpp.
SweepMethodPtr make_tpe(const SweepOptions& options, int64_t budget);

}  // namespace lockstep
