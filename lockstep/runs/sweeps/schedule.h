// The state of a sweep: which decisions were taken, what is to be run, and what is known. Only the
// method and the results determine it, so a sweep that is read from its record continues as if it
// had not been interrupted. Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "lockstep/runs/sweeps/methods/sweep_method.h"

namespace lockstep {

// A run of a trial up to a budget.
struct TrialRun {
  int64_t trial = 0;
  int64_t repeat = 0;  // from 0
  int64_t budget = 0;
  auto operator<=>(const TrialRun&) const = default;
};

enum class TrialState {
  reached,      // the run has reached its budget
  ended,        // it ended before its budget by its own rules, such as patience
  stopped,      // by a request
  diverged,     // its loss is not finite
  unbuildable,  // its parameters are refused
};
// "reached", ...
const char* to_string(TrialState state);

// The result of a run. Everything here is a function of the trial alone (except for stopped ones).
struct TrialResult {
  TrialRun run = {};
  TrialState state = TrialState::reached;
  std::string reason = {};  // of the last three states
  double value = 0;         // of the metric; NaN if there is none
  int64_t iteration = 0, epoch = 0;
  std::vector<std::pair<std::string, double>> metrics = {};  // others, by name
  std::string receipt = {};                                  // its chain up to here, or ""
};

// The mean of a trial's repeats at one budget.
struct TrialSummary {
  int64_t budget = 0;  // of the runs
  TrialState state = TrialState::reached;
  std::string reason = {};
  double value = 0, spread = 0;  // mean and standard deviation of the repeats
  std::vector<const TrialResult*> repeats = {};

  bool failed() const { return state != TrialState::reached && state != TrialState::ended; }
};

class SweepSchedule {
 public:
  // `minimize`: the smallest value is the best.
  SweepSchedule(SweepMethodPtr method, int64_t repeats, bool minimize);

  // The next decision whose needs are known, if there is one now. It is not yet taken.
  std::optional<int64_t> due() const;
  // What the method decides. `decision` must be due or taken.
  SweepDecision decide(int64_t decision) const;
  // Acts on it. Throws InternalError for a decision that the method cannot have made.
  void take(int64_t decision, SweepDecision what);
  // Records a result. A later one of the same run replaces it.
  void add(TrialResult result);
  // Forgets the results of a trial, which must not have begun.
  void drop(int64_t trial);

  // Runs without a result, in the order in which they should begin.
  const std::vector<TrialRun>& open() const { return open_; }
  bool finished() const;  // all decisions are taken and all results known

  int64_t decisions() const { return method_->decisions(); }
  const SweepDecision* taken(int64_t decision) const;
  int64_t repeats() const { return repeats_; }
  bool minimize() const { return minimize_; }

  // Trials that have begun, by number.
  std::vector<int64_t> trials() const;
  const TrialParameters& parameters(int64_t trial) const { return trials_.at(trial).parameters; }
  bool pruned(int64_t trial) const { return trials_.at(trial).pruned; }
  // The largest budget that decisions have set for the trial.
  int64_t goal(int64_t trial) const { return trials_.at(trial).goals.back(); }
  // The trial at a budget; none before all its repeats have results.
  std::optional<TrialSummary> summary(int64_t trial, int64_t budget) const;
  // At the largest of its budgets for which there is one.
  std::optional<TrialSummary> summary(int64_t trial) const;
  // All trials with a summary, the best first: those of larger budgets before others.
  std::vector<int64_t> ranking() const;

 private:
  struct Trial {
    TrialParameters parameters;
    std::vector<int64_t> goals;
    bool pruned = false;
  };

  const TrialResult* result(const TrialRun& run) const;
  bool known(int64_t decision) const;
  bool better(const TrialSummary& a, int64_t trial_a, const TrialSummary& b, int64_t trial_b) const;
  void update_open();

  const SweepMethodPtr method_;
  const int64_t repeats_;
  const bool minimize_;
  std::vector<std::optional<SweepDecision>> taken_;
  std::map<int64_t, Trial> trials_;
  std::map<TrialRun, TrialResult> results_;
  std::vector<TrialRun> arrived_;  // in the order of add()
  std::vector<TrialRun> open_;
};

}  // namespace lockstep
