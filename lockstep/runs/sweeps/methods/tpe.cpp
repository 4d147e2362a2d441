// Tree-structured Parzen estimator: Bergstra, Bardenet, Bengio, Kegl, "Algorithms for
// hyper-parameter optimization", NIPS 2011. Each parameter is chosen by itself: of candidates that
// are drawn from the density of the good trials, the one with the largest ratio to the density of
// the others.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "lockstep/base/numeric/random.h"
#include "lockstep/runs/sweeps/methods/search_space.h"
#include "lockstep/runs/sweeps/methods/sobol.h"
#include "lockstep/runs/sweeps/methods/sweep_method.h"

namespace lockstep {
namespace {

constexpr int candidates = 24;
constexpr double share_of_good_trials = 0.2;

double normal_distribution(double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); }

// A mixture of normal distributions in [0, 1]: one around each observation, and a wide one that
// stands for ignorance.
class Parzen {
 public:
  explicit Parzen(std::vector<double> at) : at_(std::move(at)) {
    std::sort(at_.begin(), at_.end());
    const double least = 1.0 / std::min<double>(100, double(at_.size()) + 1);
    for (size_t i = 0; i < at_.size(); ++i) {
      const double left = at_[i] - (i > 0 ? at_[i - 1] : 0);
      const double right = (i + 1 < at_.size() ? at_[i + 1] : 1) - at_[i];
      width_.push_back(std::clamp(std::max(left, right), least, 1.0));
    }
    at_.push_back(0.5);
    width_.push_back(1);
  }

  double density(double x) const {
    double sum = 0;
    for (size_t i = 0; i < at_.size(); ++i) {
      const double z = (x - at_[i]) / width_[i];
      const double inside =
          normal_distribution((1 - at_[i]) / width_[i]) - normal_distribution(-at_[i] / width_[i]);
      sum += std::exp(-0.5 * z * z) / (width_[i] * inside);
    }
    return sum / double(at_.size());
  }

  // A draw, from the random numbers from position `i` on. Draws outside are repeated.
  double draw(const RandomStream& stream, uint64_t i) const {
    const auto chosen = static_cast<size_t>(stream.below(i, at_.size()));
    for (uint64_t attempt = 0; attempt < 100; ++attempt) {
      const double x = at_[chosen] + width_[chosen] * stream.normal(i + 1 + attempt);
      if (x >= 0 && x < 1) return x;
    }
    return std::min(at_[chosen], 0.999999);
  }

 private:
  std::vector<double> at_, width_;
};

class Tpe : public SweepMethod {
 public:
  Tpe(const SweepOptions& options, int64_t budget) : options_(options), budget_(budget) {}

  int64_t decisions() const override { return options_.trials; }

  std::vector<int64_t> needs(int64_t decision) const override {
    if (decision < options_.random_trials) return {};
    std::vector<int64_t> earlier(
        static_cast<size_t>(std::max<int64_t>(0, decision - options_.window + 1)));
    std::iota(earlier.begin(), earlier.end(), 0);
    return earlier;
  }

  SweepDecision decide(int64_t decision, const std::vector<DecisionResults>& seen) const override {
    const int64_t trial = decision + 1;
    SweepDecision next{.what = "trial " + std::to_string(trial) + " of " +
                               std::to_string(options_.trials)};
    next.starts.push_back(
        {trial, seen.empty() ? random_trial(options_, trial) : suggestion(trial, ranked(seen))});
    next.goals.push_back({trial, budget_});
    return next;
  }

 private:
  // All results, best first. Trials that failed teach that their parameters are bad.
  std::vector<RankedTrial> ranked(const std::vector<DecisionResults>& seen) const {
    std::vector<RankedTrial> all;
    for (const DecisionResults& results : seen) {
      all.insert(all.end(), results.trials.begin(), results.trials.end());
    }
    const bool smallest = options_.goal == "minimize";
    std::stable_sort(all.begin(), all.end(), [&](const RankedTrial& a, const RankedTrial& b) {
      if (a.failed != b.failed) return b.failed;
      if (!a.failed && a.value != b.value) {
        return smallest ? a.value < b.value : a.value > b.value;
      }
      return a.trial < b.trial;
    });
    return all;
  }

  TrialParameters suggestion(int64_t trial, const std::vector<RankedTrial>& ranked) const {
    const auto good =
        static_cast<size_t>(std::max(1.0, std::ceil(share_of_good_trials * double(ranked.size()))));
    std::vector<double> point;
    for (const SweepParameter& p : options_.parameters) {
      std::vector<double> better, others;
      for (size_t i = 0; i < ranked.size(); ++i) {
        for (const auto& [name, value] : *ranked[i].parameters) {
          if (name == p.name) (i < good ? better : others).push_back(parameter_position(p, value));
        }
      }
      const RandomStream stream({.seed = static_cast<uint64_t>(options_.seed),
                                 .use = sweep_draws,
                                 .a = 2,
                                 .b = key_from_text(p.name),
                                 .c = static_cast<uint64_t>(trial)});
      point.push_back(p.values.empty() ? best_of_range(stream, better, others)
                                       : best_of_list(stream, p.values.size(), better, others));
    }
    return trial_at(options_, point);
  }

  static double best_of_range(const RandomStream& stream, std::vector<double> better,
                              std::vector<double> others) {
    const Parzen good(std::move(better)), bad(std::move(others));
    double best = 0, best_ratio = -1;
    for (uint64_t c = 0; c < candidates; ++c) {
      const double x = good.draw(stream, 1000 * c);
      const double ratio = good.density(x) / bad.density(x);
      if (ratio > best_ratio) best = x, best_ratio = ratio;
    }
    return best;
  }

  // Shares of the values among the good and the other trials, with one more trial of each.
  static double best_of_list(const RandomStream& stream, size_t n,
                             const std::vector<double>& better, const std::vector<double>& others) {
    const auto index = [&](double x) {
      return std::min(static_cast<size_t>(x * double(n)), n - 1);
    };
    std::vector<double> good(n, 1), bad(n, 1);
    for (const double x : better) ++good[index(x)];
    for (const double x : others) ++bad[index(x)];
    size_t best = 0;
    double best_ratio = -1;
    for (uint64_t c = 0; c < candidates; ++c) {
      double left = stream.uniform(1000 * c) * (double(n) + double(better.size()));
      size_t value = 0;
      while (value + 1 < n && left >= good[value]) left -= good[value++];
      const double ratio = good[value] / bad[value];
      if (ratio > best_ratio) best = value, best_ratio = ratio;
    }
    return (double(best) + 0.5) / double(n);
  }

  const SweepOptions options_;
  const int64_t budget_;
};

}  // namespace

SweepMethodPtr make_tpe(const SweepOptions& options, int64_t budget) {
  return std::make_shared<Tpe>(options, budget);
}

}  // namespace lockstep
