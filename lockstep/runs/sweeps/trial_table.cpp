#include "lockstep/runs/sweeps/trial_table.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "lockstep/base/json/json_text.h"

namespace lockstep {
namespace {

using nlohmann::json;

constexpr double nan = std::numeric_limits<double>::quiet_NaN();
constexpr size_t fewest_trials = 8;  // for an importance

// A cell of a CSV file (RFC 4180).
std::string cell(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  if (text.find_first_of(",\"\r") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

// The shortest text that gives the same number; "" for NaN.
std::string cell(double value) { return std::isfinite(value) ? json(value).dump() : ""; }

// A value as people read it: text without quotes.
std::string plain(const std::string& value) {
  const json parsed = parse_json<json>(value);
  return parsed.is_string() ? parsed.get<std::string>() : value;
}

std::string state_of(const SweepSchedule& schedule, int64_t trial, const TrialSummary& s) {
  if (s.failed()) return to_string(s.state);
  if (schedule.pruned(trial)) return "pruned";
  const bool complete = s.state == TrialState::ended || s.budget == schedule.goal(trial);
  return complete && schedule.finished() ? "finished" : "open";
}

// The group of each value: itself for values of lists and few integers, else one of about equally
// large ranges.
std::vector<size_t> groups_of(const SweepParameter& p, const std::vector<std::string>& values) {
  std::vector<std::string> distinct = values;
  std::sort(distinct.begin(), distinct.end());
  distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
  std::vector<size_t> groups;
  if (!p.values.empty() || (p.integer && distinct.size() <= 4)) {
    for (const std::string& v : values) {
      groups.push_back(static_cast<size_t>(std::lower_bound(distinct.begin(), distinct.end(), v) -
                                           distinct.begin()));
    }
    return groups;
  }
  std::vector<std::pair<double, size_t>> order;
  for (size_t i = 0; i < values.size(); ++i) {
    order.emplace_back(parse_json<json>(values[i]).get<double>(), i);
  }
  std::sort(order.begin(), order.end());
  const size_t count = std::clamp<size_t>(values.size() / 4, 2, 5);
  groups.resize(values.size());
  for (size_t i = 0; i < order.size(); ++i) groups[order[i].second] = i * count / order.size();
  return groups;
}

double explained(const std::vector<size_t>& groups, const std::vector<double>& results) {
  const auto n = static_cast<double>(results.size());
  double mean = 0;
  for (const double r : results) mean += r / n;
  std::map<size_t, std::pair<double, double>> sums;  // number and sum by group
  double total = 0;
  for (size_t i = 0; i < results.size(); ++i) {
    sums[groups[i]].first += 1;
    sums[groups[i]].second += results[i];
    total += (results[i] - mean) * (results[i] - mean);
  }
  const auto k = static_cast<double>(sums.size());
  if (n <= k || k < 2 || total <= 0) return nan;
  double between = 0;
  for (const auto& [unused, sum] : sums) {
    between += sum.first * std::pow(sum.second / sum.first - mean, 2);
  }
  const double within = (total - between) / (n - k);
  return std::clamp((between - (k - 1) * within) / total, 0.0, 1.0);
}

}  // namespace

std::vector<TrialRow> trial_rows(const SweepSchedule& schedule, const SweepOptions& options) {
  std::map<int64_t, int64_t> ranks;
  for (const int64_t trial : schedule.ranking()) {
    const auto next = static_cast<int64_t>(ranks.size()) + 1;
    ranks[trial] = next;
  }
  std::vector<TrialRow> rows;
  for (const int64_t trial : schedule.trials()) {
    TrialRow row{.trial = trial, .state = "open", .value = nan, .spread = nan};
    std::map<std::string, std::string> values(schedule.parameters(trial).begin(),
                                              schedule.parameters(trial).end());
    for (const SweepParameter& p : options.parameters) {
      const auto found = values.find(p.name);
      row.parameters.push_back(found == values.end() ? "" : plain(found->second));
    }
    if (const auto s = schedule.summary(trial)) {
      row.rank = ranks[trial];
      row.state = state_of(schedule, trial, *s);
      row.reason = s->reason;
      row.value = s->value;
      row.spread = s->spread;
      row.epochs = s->repeats.front()->epoch;
      row.iterations = s->repeats.front()->iteration;
      row.metrics = s->repeats.front()->metrics;
      for (auto& [name, value] : row.metrics) {
        value = 0;
        for (const TrialResult* repeat : s->repeats) {
          for (const auto& [other, one] : repeat->metrics) {
            if (other == name) value += one / static_cast<double>(s->repeats.size());
          }
        }
      }
      for (const TrialResult* repeat : s->repeats) {
        row.receipts += (row.receipts.empty() ? "" : " ") + repeat->receipt;
      }
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

std::string trials_csv(const SweepSchedule& schedule, const SweepOptions& options,
                       const std::string& metric) {
  const std::vector<TrialRow> rows = trial_rows(schedule, options);
  // Other metrics, in the order of the first trial that has them.
  std::vector<std::string> others;
  for (const TrialRow& row : rows) {
    for (const auto& [name, unused] : row.metrics) {
      if (name != metric && std::find(others.begin(), others.end(), name) == others.end()) {
        others.push_back(name);
      }
    }
  }
  const bool repeats = schedule.repeats() > 1;
  std::string text = "trial,rank,state,epochs,iterations," + cell(metric);
  if (repeats) text += ",spread";
  for (const std::string& name : others) text += "," + cell(name);
  for (const SweepParameter& p : options.parameters) text += "," + cell(p.name);
  text += ",reason,receipt\n";
  for (const TrialRow& row : rows) {
    text += std::to_string(row.trial) + "," + (row.rank > 0 ? std::to_string(row.rank) : "") + "," +
            row.state + "," + std::to_string(row.epochs) + "," + std::to_string(row.iterations) +
            "," + cell(row.value);
    if (repeats) text += "," + cell(row.spread);
    for (const std::string& name : others) {
      const auto found = std::find_if(row.metrics.begin(), row.metrics.end(),
                                      [&](const auto& m) { return m.first == name; });
      text += "," + (found == row.metrics.end() ? "" : cell(found->second));
    }
    for (const std::string& value : row.parameters) text += "," + cell(value);
    text += "," + cell(row.reason) + "," + row.receipts + "\n";
  }
  return text;
}

std::vector<std::pair<std::string, double>> parameter_importance(const SweepSchedule& schedule,
                                                                 const SweepOptions& options) {
  std::vector<std::pair<std::string, double>> importance;
  // The smallest budget at which every trial has a result: that of the first decision.
  std::map<int64_t, double> results;
  int64_t budget = 0;
  for (int64_t k = 0; k < schedule.decisions(); ++k) {
    const SweepDecision* const taken = schedule.taken(k);
    if (taken == nullptr || taken->starts.empty()) continue;
    for (const auto& goal : taken->goals) {
      if (budget == 0) budget = goal.budget;
      if (goal.budget != budget) continue;
      const auto s = schedule.summary(goal.trial, budget);
      if (s && !s->failed()) results[goal.trial] = s->value;
    }
  }
  for (const SweepParameter& p : options.parameters) {
    std::vector<std::string> values;
    std::vector<double> with;
    for (const auto& [trial, value] : results) {
      for (const auto& [name, used] : schedule.parameters(trial)) {
        if (name != p.name) continue;
        values.push_back(used);
        with.push_back(value);
      }
    }
    importance.emplace_back(
        p.name, values.size() < fewest_trials ? nan : explained(groups_of(p, values), with));
  }
  return importance;
}

}  // namespace lockstep
