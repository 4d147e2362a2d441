// Grids, draws, successive halving (Jamieson, Talwalkar 2016) and Hyperband (Li et al. 2018).
#include <algorithm>
#include <set>

#include "lockstep/base/error.h"
#include "lockstep/runs/sweeps/methods/search_space.h"
#include "lockstep/runs/sweeps/methods/sweep_method.h"

namespace lockstep {
namespace {

// The trials of a grid or of draws, by their number.
class Draws {
 public:
  Draws(const SweepOptions& options, const std::string& kind) : options_(options), kind_(kind) {
    if (kind_ != "grid") return;
    grid_ = grid_trials(options_);
    if (options_.trials > static_cast<int64_t>(grid_.size())) {
      throw InvalidArgument("[sweep] trials = " + std::to_string(options_.trials) +
                                ", but the grid has " + std::to_string(grid_.size()),
                            "leave trials out for the whole grid");
    }
  }

  int64_t count() const {
    return options_.trials > 0 ? options_.trials : static_cast<int64_t>(grid_.size());
  }
  TrialParameters trial(int64_t number) const {
    if (kind_ == "grid") return grid_[static_cast<size_t>(number - 1)];
    return kind_ == "sobol" ? sobol_trial(options_, number) : random_trial(options_, number);
  }
  // A decision that begins `count` trials from `first` on.
  SweepDecision start(int64_t first, int64_t count, int64_t budget, std::string what) const {
    SweepDecision decision{.what = std::move(what)};
    for (int64_t i = first; i < first + count; ++i) {
      decision.starts.push_back({i, trial(i)});
      decision.goals.push_back({i, budget});
    }
    return decision;
  }

 private:
  const SweepOptions options_;
  const std::string kind_;
  std::vector<TrialParameters> grid_;
};

// All trials run to their end.
class CompleteTrials : public SweepMethod {
 public:
  CompleteTrials(const SweepOptions& options, int64_t budget)
      : draws_(options, options.method), budget_(budget) {}

  int64_t decisions() const override { return 1; }
  std::vector<int64_t> needs(int64_t) const override { return {}; }
  SweepDecision decide(int64_t, const std::vector<DecisionResults>&) const override {
    return draws_.start(1, draws_.count(), budget_, "all trials");
  }

 private:
  const Draws draws_;
  const int64_t budget_;
};

// Successive halving from one or several rungs on. A bracket has its own trials.
class Halving : public SweepMethod {
 public:
  struct Bracket {
    int64_t first = 1, count = 0;  // trials
    size_t from = 0;               // index of its first rung
  };

  Halving(const SweepOptions& options, int64_t budget, bool hyperband)
      : draws_(options, options.draws),
        reduction_(options.reduction),
        rungs_(rungs_of(options, budget)) {
    const std::vector<int64_t> sizes =
        hyperband ? bracket_sizes(draws_.count()) : std::vector<int64_t>{draws_.count()};
    int64_t first = 1;
    for (size_t b = 0; b < sizes.size(); ++b) {
      for (size_t rung = b; rung < rungs_.size(); ++rung) {
        positions_.push_back({brackets_.size(), rung});
      }
      brackets_.push_back({first, sizes[b], b});
      first += sizes[b];
    }
  }

  int64_t decisions() const override { return static_cast<int64_t>(positions_.size()); }

  std::vector<int64_t> needs(int64_t decision) const override {
    const Position& position = positions_[static_cast<size_t>(decision)];
    if (position.rung == brackets_[position.bracket].from) return {};
    return {decision - 1};
  }

  SweepDecision decide(int64_t decision, const std::vector<DecisionResults>& seen) const override {
    const Position& position = positions_[static_cast<size_t>(decision)];
    const Bracket& bracket = brackets_[position.bracket];
    std::string what = "rung " + std::to_string(position.rung - bracket.from + 1) + " of " +
                       std::to_string(rungs_.size() - bracket.from);
    if (brackets_.size() > 1) {
      what = "bracket " + std::to_string(position.bracket + 1) + " of " +
             std::to_string(brackets_.size()) + ", " + what;
    }
    const int64_t budget = rungs_[position.rung];
    if (position.rung == bracket.from) {
      return draws_.start(bracket.first, bracket.count, budget, std::move(what));
    }
    SweepDecision next{.what = std::move(what)};
    const std::vector<RankedTrial>& ranked = seen.front().trials;
    const auto kept = std::max<int64_t>(1, static_cast<int64_t>(ranked.size()) / reduction_);
    for (const RankedTrial& trial : ranked) {
      if (trial.failed) continue;
      if (static_cast<int64_t>(next.goals.size()) < kept) {
        next.goals.push_back({trial.trial, budget});
      } else {
        next.pruned.push_back(trial.trial);
      }
    }
    std::sort(next.goals.begin(), next.goals.end(),
              [](const auto& a, const auto& b) { return a.trial < b.trial; });
    std::sort(next.pruned.begin(), next.pruned.end());
    return next;
  }

 private:
  struct Position {
    size_t bracket, rung;
  };

  // Divides the trials among brackets so that each bracket costs about the same, as Hyperband does.
  std::vector<int64_t> bracket_sizes(int64_t trials) const {
    const size_t n = rungs_.size();
    std::vector<double> shares;
    double sum = 0;
    for (size_t b = 0; b < n; ++b) {
      // ceil(n / (s + 1) * reduction^s) trials in bracket s, of n = s_max + 1 brackets.
      double power = 1;
      for (size_t i = b + 1; i < n; ++i) power *= double(reduction_);
      shares.push_back(std::max(1.0, double(n) / double(n - b) * power));
      sum += shares.back();
    }
    if (trials < static_cast<int64_t>(n)) {
      throw InvalidArgument("[sweep] hyperband has " + std::to_string(n) +
                                " brackets here, more than trials = " + std::to_string(trials),
                            "give more trials, or a larger min_epochs or reduction");
    }
    std::vector<int64_t> sizes;
    int64_t left = trials;
    for (size_t b = 0; b < n; ++b) {
      const auto later = static_cast<int64_t>(n - b - 1);
      const auto size = static_cast<int64_t>(double(trials) * shares[b] / sum + 0.5);
      sizes.push_back(b + 1 == n ? left : std::clamp<int64_t>(size, 1, left - later));
      left -= sizes.back();
    }
    return sizes;
  }

  const Draws draws_;
  const int64_t reduction_;
  const std::vector<int64_t> rungs_;
  std::vector<Bracket> brackets_;
  std::vector<Position> positions_;  // of each decision
};

}  // namespace

std::vector<int64_t> rungs_of(const SweepOptions& options, int64_t budget) {
  std::vector<int64_t> rungs = options.rungs;
  if (!rungs.empty() && rungs.back() > budget) {
    throw InvalidArgument("[sweep] the rung at " + std::to_string(rungs.back()) +
                              " is beyond the end of a trial at " + std::to_string(budget),
                          "raise max_epochs, or lower the rung");
  }
  if (rungs.empty()) {
    for (int64_t at = options.min_epochs; at < budget; at *= options.reduction) {
      rungs.push_back(at);
    }
  }
  if (rungs.empty() || rungs.back() < budget) rungs.push_back(budget);
  return rungs;
}

SweepMethodPtr make_sweep_method(const SweepOptions& options, int64_t budget) {
  options.check();
  if (budget < 1) throw InvalidArgument("[sweep] a trial's budget must be at least 1");
  if (options.method == "tpe") return make_tpe(options, budget);
  if (options.method == "successive-halving" || options.method == "hyperband") {
    return std::make_shared<Halving>(options, budget, options.method == "hyperband");
  }
  return std::make_shared<CompleteTrials>(options, budget);
}

}  // namespace lockstep
