#include "lockstep/runs/sweeps/schedule.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "lockstep/base/error.h"

// Set by the tests alone: decisions are taken as soon as half of the results are there, and trials
// are compared and listed in the order in which they have arrived. Tests of sweeps must then fail.
#ifndef LOCKSTEP_SWEEPS_IN_ORDER_OF_ARRIVAL
#define LOCKSTEP_SWEEPS_IN_ORDER_OF_ARRIVAL 0
#endif

namespace lockstep {
namespace {

constexpr bool in_order_of_arrival = LOCKSTEP_SWEEPS_IN_ORDER_OF_ARRIVAL != 0;

// Whether no larger budget can change the result.
bool is_final(TrialState state) { return state != TrialState::reached; }

// Failures that are the trial's own are worse than a stop.
int rank_of(TrialState state) {
  switch (state) {
    case TrialState::reached:
    case TrialState::ended:
      return 0;
    case TrialState::stopped:
      return 1;
    case TrialState::diverged:
    case TrialState::unbuildable:
      return 2;
  }
  return 2;
}

}  // namespace

const char* to_string(TrialState state) {
  switch (state) {
    case TrialState::reached:
      return "reached";
    case TrialState::ended:
      return "ended";
    case TrialState::stopped:
      return "stopped";
    case TrialState::diverged:
      return "diverged";
    case TrialState::unbuildable:
      return "unbuildable";
  }
  return "";
}

SweepSchedule::SweepSchedule(SweepMethodPtr method, int64_t repeats, bool minimize)
    : method_(std::move(method)),
      repeats_(repeats),
      minimize_(minimize),
      taken_(static_cast<size_t>(method_->decisions())) {}

const TrialResult* SweepSchedule::result(const TrialRun& run) const {
  const auto found = results_.find(run);
  if (found != results_.end()) return &found->second;
  // A trial that has ended has the same result at every larger budget.
  for (auto it = results_.lower_bound({run.trial, run.repeat, 0});
       it != results_.end() && it->first < run; ++it) {
    if (is_final(it->second.state)) return &it->second;
  }
  return nullptr;
}

bool SweepSchedule::known(int64_t decision) const {
  const auto& taken = taken_[static_cast<size_t>(decision)];
  if (!taken) return false;
  const auto have = std::count_if(taken->goals.begin(), taken->goals.end(), [&](const auto& goal) {
    return summary(goal.trial, goal.budget).has_value();
  });
  const auto all = static_cast<int64_t>(taken->goals.size());
  return have >= (in_order_of_arrival ? (all + 1) / 2 : all);
}

std::optional<int64_t> SweepSchedule::due() const {
  for (int64_t k = 0; k < method_->decisions(); ++k) {
    if (taken_[static_cast<size_t>(k)]) continue;
    const std::vector<int64_t> needs = method_->needs(k);
    if (std::all_of(needs.begin(), needs.end(), [&](int64_t d) { return known(d); })) return k;
  }
  return std::nullopt;
}

bool SweepSchedule::better(const TrialSummary& a, int64_t trial_a, const TrialSummary& b,
                           int64_t trial_b) const {
  if (rank_of(a.state) != rank_of(b.state)) return rank_of(a.state) < rank_of(b.state);
  if (!a.failed() && a.value != b.value) return minimize_ ? a.value < b.value : a.value > b.value;
  return trial_a < trial_b;
}

SweepDecision SweepSchedule::decide(int64_t decision) const {
  std::vector<DecisionResults> seen;
  for (const int64_t earlier : method_->needs(decision)) {
    DecisionResults results{.decision = earlier};
    struct Known {
      int64_t trial;
      TrialSummary summary;
    };
    std::vector<Known> known;
    for (const auto& goal : taken_[static_cast<size_t>(earlier)]->goals) {
      if (auto found = summary(goal.trial, goal.budget)) known.push_back({goal.trial, *found});
    }
    std::sort(known.begin(), known.end(), [&](const Known& a, const Known& b) {
      return better(a.summary, a.trial, b.summary, b.trial);
    });
    for (const Known& k : known) {
      results.trials.push_back(
          {k.trial, k.summary.value, k.summary.failed(), &trials_.at(k.trial).parameters});
    }
    seen.push_back(std::move(results));
  }
  return method_->decide(decision, seen);
}

void SweepSchedule::take(int64_t decision, SweepDecision what) {
  if (decision < 0 || decision >= method_->decisions() || taken(decision) != nullptr) {
    throw InternalError("[sweep] decision " + std::to_string(decision) + " is taken twice");
  }
  for (SweepDecision::Start& start : what.starts) {
    if (!trials_.insert({start.trial, Trial{start.parameters, {}, false}}).second) {
      throw InternalError("[sweep] trial " + std::to_string(start.trial) + " begins twice");
    }
  }
  for (const SweepDecision::Goal& goal : what.goals) {
    const auto found = trials_.find(goal.trial);
    if (found == trials_.end()) {
      throw InternalError("[sweep] trial " + std::to_string(goal.trial) + " has not begun");
    }
    found->second.goals.push_back(goal.budget);
  }
  for (const int64_t trial : what.pruned) {
    if (trials_.contains(trial)) trials_.at(trial).pruned = true;
  }
  taken_[static_cast<size_t>(decision)] = std::move(what);
  update_open();
}

void SweepSchedule::add(TrialResult result) {
  arrived_.push_back(result.run);
  results_[result.run] = std::move(result);
  update_open();
}

void SweepSchedule::drop(int64_t trial) {
  std::erase_if(results_, [&](const auto& entry) { return entry.first.trial == trial; });
  std::erase_if(arrived_, [&](const TrialRun& run) { return run.trial == trial; });
}

void SweepSchedule::update_open() {
  open_.clear();
  std::set<TrialRun> listed;
  for (const auto& taken : taken_) {
    if (!taken) continue;
    for (const auto& goal : taken->goals) {
      for (int64_t r = 0; r < repeats_; ++r) {
        const TrialRun run{goal.trial, r, goal.budget};
        if (result(run) == nullptr && listed.insert(run).second) open_.push_back(run);
      }
    }
  }
}

bool SweepSchedule::finished() const {
  return open_.empty() && std::all_of(taken_.begin(), taken_.end(),
                                      [](const auto& taken) { return taken.has_value(); });
}

const SweepDecision* SweepSchedule::taken(int64_t decision) const {
  const auto& taken = taken_[static_cast<size_t>(decision)];
  return taken ? &*taken : nullptr;
}

std::vector<int64_t> SweepSchedule::trials() const {
  std::vector<int64_t> numbers;
  if (in_order_of_arrival) {
    for (const TrialRun& run : arrived_) {
      if (std::find(numbers.begin(), numbers.end(), run.trial) == numbers.end()) {
        numbers.push_back(run.trial);
      }
    }
    return numbers;
  }
  for (const auto& [number, unused] : trials_) numbers.push_back(number);
  return numbers;
}

std::optional<TrialSummary> SweepSchedule::summary(int64_t trial, int64_t budget) const {
  TrialSummary s{.budget = budget};
  double sum = 0;
  for (int64_t r = 0; r < repeats_; ++r) {
    const TrialResult* const one = result({trial, r, budget});
    if (one == nullptr) return std::nullopt;
    s.repeats.push_back(one);
    sum += one->value;
    if (rank_of(one->state) > rank_of(s.state) ||
        (one->state == TrialState::ended && s.state == TrialState::reached)) {
      s.state = one->state;
      s.reason = one->reason;
    }
  }
  if (s.failed()) {
    s.value = s.spread = std::numeric_limits<double>::quiet_NaN();
    return s;
  }
  s.value = sum / static_cast<double>(repeats_);
  double squares = 0;
  for (const TrialResult* one : s.repeats) squares += std::pow(one->value - s.value, 2);
  s.spread = repeats_ > 1 ? std::sqrt(squares / static_cast<double>(repeats_ - 1)) : 0;
  return s;
}

std::optional<TrialSummary> SweepSchedule::summary(int64_t trial) const {
  const std::vector<int64_t>& goals = trials_.at(trial).goals;
  for (auto goal = goals.rbegin(); goal != goals.rend(); ++goal) {
    if (auto found = summary(trial, *goal)) return found;
  }
  return std::nullopt;
}

std::vector<int64_t> SweepSchedule::ranking() const {
  struct Entry {
    int64_t trial;
    TrialSummary summary;
  };
  std::vector<Entry> entries;
  for (const int64_t trial : trials()) {
    if (auto found = summary(trial)) entries.push_back({trial, *found});
  }
  std::stable_sort(entries.begin(), entries.end(), [&](const Entry& a, const Entry& b) {
    if (rank_of(a.summary.state) == rank_of(b.summary.state) && !a.summary.failed() &&
        a.summary.budget != b.summary.budget) {
      return a.summary.budget > b.summary.budget;
    }
    return better(a.summary, a.trial, b.summary, b.trial);
  });
  std::vector<int64_t> trials;
  for (const Entry& e : entries) trials.push_back(e.trial);
  return trials;
}

}  // namespace lockstep
