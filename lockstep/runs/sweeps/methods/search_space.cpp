#include "lockstep/runs/sweeps/methods/search_space.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "lockstep/base/error.h"
#include "lockstep/base/json/json_text.h"
#include "lockstep/base/numeric/random.h"
#include "lockstep/runs/sweeps/methods/sobol.h"

namespace lockstep {
namespace {

using nlohmann::json;

constexpr int64_t most_trials = 100'000;

// Six significant digits: enough for any parameter, and the last bits of the logarithm do not
// matter.
double rounded(double value) {
  char text[40];
  std::snprintf(text, sizeof text, "%.6g", value);
  return std::strtod(text, nullptr);
}

double number_at(const SweepParameter& p, double position) {
  const double low = p.low, high = p.integer ? p.high + 1 : p.high;
  double value = low + position * (high - low);
  if (p.logarithmic) value = std::exp(std::log(low) + position * (std::log(high) - std::log(low)));
  value = p.integer ? std::floor(value) : rounded(value);
  return std::clamp(value, p.low, p.high);
}

std::string text_of_number(const SweepParameter& p, double value) {
  return p.integer ? json(static_cast<int64_t>(value)).dump() : json(value).dump();
}

// The values of a grid along one parameter.
std::vector<std::string> grid_values(const SweepParameter& p) {
  if (!p.values.empty()) return p.values;
  const auto count = static_cast<int64_t>(p.high - p.low) + 1;
  if (p.integer && (p.steps == 0 || p.steps >= count)) {
    if (count > most_trials) {
      throw InvalidArgument("[sweep.parameters] " + p.name + ": the range has " +
                                std::to_string(count) + " values, too many for a grid",
                            "give `steps`, the number of values of the grid");
    }
    std::vector<std::string> values;
    for (int64_t i = 0; i < count; ++i) values.push_back(text_of_number(p, p.low + double(i)));
    return values;
  }
  if (p.steps == 0) {
    throw InvalidArgument("[sweep.parameters] " + p.name + ": a grid needs single values",
                          "give `steps`, the number of values, or a list of values");
  }
  std::vector<std::string> values;
  for (int64_t i = 0; i < p.steps; ++i) {
    const double share = double(i) / double(p.steps - 1);
    double value = p.low + share * (p.high - p.low);
    if (p.logarithmic) {
      value = std::exp(std::log(p.low) + share * (std::log(p.high) - std::log(p.low)));
    }
    value = std::clamp(p.integer ? std::round(value) : rounded(value), p.low, p.high);
    std::string text = text_of_number(p, value);
    if (values.empty() || values.back() != text) values.push_back(std::move(text));
  }
  return values;
}

// Leaves out parameters whose conditions do not hold.
class Activity {
 public:
  Activity(const SweepOptions& options, const std::vector<std::string>& values)
      : options_(options) {
    for (size_t i = 0; i < values.size(); ++i) {
      by_name_[options.parameters[i].name] = {&options.parameters[i], &values[i]};
    }
  }

  TrialParameters active() const {
    TrialParameters trial;
    for (const SweepParameter& p : options_.parameters) {
      if (holds(p)) trial.emplace_back(p.name, *by_name_.at(p.name).second);
    }
    return trial;
  }

 private:
  // Conditions have no circles (SweepOptions::check()).
  bool holds(const SweepParameter& p) const {
    return std::all_of(p.when.begin(), p.when.end(), [&](const SweepCondition& c) {
      const auto& [other, other_value] = by_name_.at(c.parameter);
      if (!holds(*other)) return false;
      const std::string& value = *other_value;
      if (!c.values.empty()) {
        return std::any_of(c.values.begin(), c.values.end(), [&](const std::string& wanted) {
          return parse_json<json>(wanted) == parse_json<json>(value);
        });
      }
      const json number = parse_json<json>(value);
      return number.is_number() && number.get<double>() >= c.low && number.get<double>() <= c.high;
    });
  }

  const SweepOptions& options_;
  std::map<std::string, std::pair<const SweepParameter*, const std::string*>> by_name_;
};

}  // namespace

std::string parameter_value(const SweepParameter& p, double position) {
  if (p.values.empty()) return text_of_number(p, number_at(p, position));
  const size_t n = p.values.size();
  return p.values[std::min(static_cast<size_t>(position * double(n)), n - 1)];
}

double parameter_position(const SweepParameter& p, const std::string& value) {
  if (!p.values.empty()) {
    const auto found = std::find(p.values.begin(), p.values.end(), value);
    return (double(found - p.values.begin()) + 0.5) / double(p.values.size());
  }
  if (p.low == p.high && !p.integer) return 0.5;
  const double number = parse_json<json>(value).get<double>() + (p.integer ? 0.5 : 0);
  const double high = p.integer ? p.high + 1 : p.high;
  const double position =
      p.logarithmic ? (std::log(number) - std::log(p.low)) / (std::log(high) - std::log(p.low))
                    : (number - p.low) / (high - p.low);
  return std::clamp(position, 0.0, 1.0);
}

TrialParameters trial_at(const SweepOptions& options, std::span<const double> point) {
  std::vector<std::string> values;
  for (size_t i = 0; i < options.parameters.size(); ++i) {
    values.push_back(parameter_value(options.parameters[i], point[i]));
  }
  return Activity(options, values).active();
}

std::vector<TrialParameters> grid_trials(const SweepOptions& options) {
  std::vector<std::vector<std::string>> axes;
  double count = 1;
  for (const SweepParameter& p : options.parameters) {
    axes.push_back(grid_values(p));
    count *= double(axes.back().size());
  }
  if (count > double(most_trials)) {
    throw InvalidArgument("[sweep] the grid has more than 100,000 trials",
                          "use method = \"random\" or \"sobol\" with a number of trials");
  }
  std::vector<TrialParameters> trials;
  std::set<TrialParameters> seen;  // trials that differ in parameters that they do not use
  std::vector<size_t> at(axes.size(), 0);
  for (bool more = true; more;) {
    std::vector<std::string> values;
    for (size_t i = 0; i < axes.size(); ++i) values.push_back(axes[i][at[i]]);
    TrialParameters trial = Activity(options, values).active();
    if (seen.insert(trial).second) trials.push_back(std::move(trial));
    more = false;
    for (size_t i = axes.size(); i-- > 0 && !more;) {
      more = ++at[i] < axes[i].size();
      if (!more) at[i] = 0;
    }
  }
  for (const SweepParameter& p : options.parameters) {
    const auto uses = [&](const TrialParameters& trial) {
      return std::any_of(trial.begin(), trial.end(),
                         [&](const auto& used) { return used.first == p.name; });
    };
    if (p.when.empty() || std::any_of(trials.begin(), trials.end(), uses)) continue;
    throw InvalidArgument(
        "[sweep.parameters] " + p.name + ": its condition is never true in the grid",
        "`when` must have values that the grid has; { low = A, high = B } stands "
        "for all between");
  }
  return trials;
}

TrialParameters random_trial(const SweepOptions& options, int64_t number) {
  std::vector<double> point;
  for (size_t i = 0; i < options.parameters.size(); ++i) {
    const RandomStream stream({.seed = static_cast<uint64_t>(options.seed),
                               .use = sweep_draws,
                               .a = 0,
                               .b = key_from_text(options.parameters[i].name)});
    point.push_back(stream.uniform(static_cast<uint64_t>(number)));
  }
  return trial_at(options, point);
}

TrialParameters sobol_trial(const SweepOptions& options, int64_t number) {
  if (options.parameters.size() > sobol_dimensions) {
    throw InvalidArgument("[sweep] Sobol sequences have at most " +
                              std::to_string(sobol_dimensions) + " parameters here, there are " +
                              std::to_string(options.parameters.size()),
                          "draw them at random");
  }
  std::vector<double> point;
  for (size_t i = 0; i < options.parameters.size(); ++i) {
    point.push_back(
        scrambled_sobol(static_cast<uint64_t>(options.seed), i, static_cast<uint32_t>(number - 1)));
  }
  return trial_at(options, point);
}

}  // namespace lockstep
