// Decisions of sweeps, with simulated workers of random speed: no training.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <queue>

#include "lockstep/base/numeric/random.h"
#include "lockstep/runs/jobs/sweep_table.h"
#include "lockstep/runs/sweeps/methods/search_space.h"
#include "lockstep/runs/sweeps/methods/sobol.h"
#include "lockstep/runs/sweeps/record.h"
#include "lockstep/runs/sweeps/schedule.h"
#include "lockstep/runs/sweeps/trial_table.h"
#include "tests/runs/support.h"

namespace lockstep {
namespace {

using nlohmann::json;
using testing::contains;
using testing::refusal;

SweepOptions options_of(const std::string& text) { return read_sweep_table(json::parse(text)); }

constexpr const char* parameters = R"("parameters": {
  "rate": {"low": 0.0001, "high": 1, "scale": "log"},
  "width": {"low": 4, "high": 64},
  "solver": ["sgdm", "adam", "rmsprop"],
  "momentum": {"low": 0.5, "high": 0.99, "when": {"solver": "sgdm"}}})";

SweepOptions with_method(const std::string& method, const std::string& more = "") {
  SweepOptions options =
      options_of(R"({"method": ")" + method + R"(", "trials": 27, )" + more + parameters + "}");
  options.goal = "minimize";
  return options;
}

double field(const TrialParameters& trial, const std::string& name, double otherwise) {
  for (const auto& [key, value] : trial) {
    if (key == name) return json::parse(value).get<double>();
  }
  return otherwise;
}

// A training that knows its answer. Some trials diverge, and some are equally good.
TrialResult simulated(const TrialRun& run, const TrialParameters& trial) {
  TrialResult r{.run = run};
  const double rate = field(trial, "rate", 0.1);
  if (rate > 0.7) {
    r.state = TrialState::diverged;
    r.reason = "too fast";
    r.value = NAN;
    return r;
  }
  r.iteration = 10 * run.budget;
  r.epoch = run.budget;
  const double distance = std::abs(std::log10(rate) + 2) + field(trial, "momentum", 0.7);
  r.value = std::round(20 * (distance + 1.0 / double(run.budget) + 0.01 * double(run.repeat))) / 20;
  r.receipt = std::to_string(run.trial) + ":" + std::to_string(run.budget);
  return r;
}

// What a sweep leaves: its decisions in order, and the table. `workers` have random speeds. After
// `stop_after` results everything is forgotten but the record, and the sweep continues.
std::string run_simulated(const SweepOptions& options, int64_t budget, int workers, uint64_t seed,
                          int stop_after = -1) {
  const SweepMethodPtr method = make_sweep_method(options, budget);
  auto schedule = std::make_unique<SweepSchedule>(method, options.repeats, true);
  std::vector<TrialResult> known;
  const RandomStream speeds({.seed = seed});
  using Entry = std::pair<double, TrialRun>;  // time of the end
  std::vector<Entry> active;
  double now = 0;
  uint64_t draws = 0;
  for (;;) {
    while (const auto due = schedule->due()) schedule->take(*due, schedule->decide(*due));
    if (schedule->finished()) break;
    for (const TrialRun& run : schedule->open()) {
      if (static_cast<int>(active.size()) == workers) break;
      const bool busy = std::any_of(active.begin(), active.end(), [&](const Entry& e) {
        return e.second.trial == run.trial && e.second.repeat == run.repeat;
      });
      if (!busy) active.emplace_back(now + 0.1 + speeds.uniform(draws++), run);
    }
    const auto first = std::min_element(active.begin(), active.end());
    now = first->first;
    known.push_back(simulated(first->second, schedule->parameters(first->second.trial)));
    active.erase(first);
    schedule->add(known.back());
    if (static_cast<int>(known.size()) == stop_after) {
      schedule = std::make_unique<SweepSchedule>(method, options.repeats, true);
      for (const TrialResult& r : known) schedule->add(result_from(to_json(r)));
      active.clear();
    }
  }
  std::string text;
  for (int64_t k = 0; k < schedule->decisions(); ++k) {
    text += to_json(k, *schedule->taken(k)).dump() + "\n";
  }
  for (const int64_t trial : schedule->ranking()) text += std::to_string(trial) + " ";
  return text + "\n" + trials_csv(*schedule, options, "loss");
}

void expect_one_answer(const SweepOptions& options, int64_t budget = 9) {
  const std::string trained = run_simulated(options, budget, 1, 0);
  for (const int workers : {2, 3, 8}) {
    for (uint64_t seed = 1; seed <= 5; ++seed) {
      const std::string trained_by_others = run_simulated(options, budget, workers, seed);
      EXPECT_EQ(trained, trained_by_others);
      const std::string trained_after_a_crash = run_simulated(options, budget, workers, seed, 7);
      EXPECT_EQ(trained, trained_after_a_crash);
    }
  }
}

TEST(SweepDecisions, OfRandomTrialsDoNotDependOnWorkers) {
  expect_one_answer(with_method("random"));
}

TEST(SweepDecisions, OfSobolTrialsDoNotDependOnWorkers) { expect_one_answer(with_method("sobol")); }

TEST(SweepDecisions, OfGridsDoNotDependOnWorkers) {
  SweepOptions options = options_of(R"({"method": "grid", "parameters": {
      "rate": {"low": 0.001, "high": 1, "scale": "log", "steps": 9}, "width": [1, 2, 3]}})");
  options.goal = "minimize";
  expect_one_answer(options);
}

TEST(SweepDecisions, OfSuccessiveHalvingDoNotDependOnWorkers) {
  expect_one_answer(with_method("successive-halving"));
  expect_one_answer(with_method("successive-halving", R"("repeats": 3, "draws": "sobol", )"));
}

TEST(SweepDecisions, OfHyperbandDoNotDependOnWorkers) {
  expect_one_answer(with_method("hyperband"));
}

TEST(SweepDecisions, OfTheParzenEstimatorDoNotDependOnWorkers) {
  expect_one_answer(with_method("tpe"));
}

TEST(SweepMethods, HalvingKeepsTheBestAndTheLowerOfEqualTrials) {
  const SweepMethodPtr method = make_sweep_method(with_method("successive-halving"), 9);
  ASSERT_EQ(method->decisions(), 3);
  const SweepDecision first = method->decide(0, {});
  EXPECT_EQ(first.starts.size(), 27u);
  EXPECT_EQ(first.goals.front().budget, 1);
  SweepSchedule schedule(method, 1, true);
  schedule.take(0, first);
  for (int64_t trial = 27; trial >= 1; --trial) {  // the order of arrival does not matter
    TrialResult r{.run = {trial, 0, 1}, .value = trial == 20 ? 0.5 : 1};
    if (trial <= 2) r.state = TrialState::diverged;
    schedule.add(r);
  }
  ASSERT_EQ(schedule.due(), 1);
  const SweepDecision second = schedule.decide(1);
  std::vector<int64_t> kept;
  for (const auto& goal : second.goals) kept.push_back(goal.trial);
  EXPECT_EQ(kept, (std::vector<int64_t>{3, 4, 5, 6, 7, 8, 9, 10, 20}));
  EXPECT_EQ(second.goals.front().budget, 3);
  EXPECT_EQ(second.pruned.size(), 16u);  // the diverged ones are not pruned
  schedule.take(1, second);
  const auto ranking = [&] {
    std::vector<int64_t> all = schedule.ranking();
    return std::vector<int64_t>(all.end() - 2, all.end());
  }();
  EXPECT_EQ(ranking, (std::vector<int64_t>{1, 2}));
}

TEST(SweepMethods, RungsAreMultipliedUntilTheEnd) {
  EXPECT_EQ(rungs_of(with_method("hyperband"), 9), (std::vector<int64_t>{1, 3, 9}));
  EXPECT_EQ(rungs_of(with_method("hyperband"), 30), (std::vector<int64_t>{1, 3, 9, 27, 30}));
  SweepOptions options = with_method("successive-halving", R"("rungs": [2, 5], )");
  EXPECT_EQ(rungs_of(options, 7), (std::vector<int64_t>{2, 5, 7}));
  EXPECT_TRUE(contains(refusal<InvalidArgument>([&] { rungs_of(options, 4); }), "beyond the end"));
}

TEST(SweepMethods, HyperbandDividesTheTrials) {
  const SweepMethodPtr method = make_sweep_method(with_method("hyperband"), 9);
  ASSERT_EQ(method->decisions(), 6);
  std::vector<size_t> sizes;
  std::vector<int64_t> budgets;
  for (int64_t k = 0; k < 6; ++k) {
    if (!method->needs(k).empty()) continue;
    const SweepDecision d = method->decide(k, {});
    sizes.push_back(d.starts.size());
    budgets.push_back(d.goals.front().budget);
  }
  EXPECT_EQ(sizes, (std::vector<size_t>{15, 7, 5}));
  EXPECT_EQ(budgets, (std::vector<int64_t>{1, 3, 9}));
}

TEST(SweepMethods, TheParzenEstimatorSeesResultsBeforeItsWindowAlone) {
  const SweepOptions options = with_method("tpe", R"("window": 4, "random_trials": 6, )");
  const SweepMethodPtr method = make_sweep_method(options, 3);
  EXPECT_TRUE(method->needs(5).empty());
  EXPECT_EQ(method->needs(9), (std::vector<int64_t>{0, 1, 2, 3, 4, 5}));  // trial 10: 1 to 6
}

TEST(SweepMethods, TheParzenEstimatorFindsBetterTrialsThanChance) {
  const auto best = [](const std::string& method) {
    SweepOptions options = with_method(method);
    options.trials = 60;
    double sum = 0;
    for (int64_t seed = 0; seed < 8; ++seed) {
      options.seed = seed;
      SweepSchedule schedule(make_sweep_method(options, 1), 1, true);
      while (!schedule.finished()) {
        while (const auto due = schedule.due()) schedule.take(*due, schedule.decide(*due));
        for (const TrialRun& run : std::vector<TrialRun>(schedule.open())) {
          TrialResult r{.run = run};
          const TrialParameters& p = schedule.parameters(run.trial);
          r.value = std::pow(std::log10(field(p, "rate", 1)) + 2.5, 2) +
                    std::pow(field(p, "width", 0) / 64 - 0.3, 2) + field(p, "momentum", 0.9);
          schedule.add(r);
        }
      }
      for (const int64_t trial : schedule.trials()) sum += schedule.summary(trial)->value;
    }
    return sum;
  };
  EXPECT_LT(best("tpe"), 0.8 * best("random"));
}

TEST(SweepSpace, ConditionsLeaveParametersOut) {
  const SweepOptions options = with_method("random");
  int with = 0;
  for (int64_t i = 1; i <= 100; ++i) {
    const TrialParameters trial = random_trial(options, i);
    bool sgdm = false, momentum = false;
    for (const auto& [name, value] : trial) {
      sgdm = sgdm || value == "\"sgdm\"";
      momentum = momentum || name == "momentum";
    }
    EXPECT_EQ(sgdm, momentum);
    with += momentum;
  }
  EXPECT_GT(with, 20);
  EXPECT_LT(with, 50);
}

TEST(SweepSpace, GridsOmitTrialsThatDifferInUnusedParametersAlone) {
  const SweepOptions options = options_of(R"({"method": "grid", "parameters": {
      "solver": ["sgdm", "adam"], "momentum": {"values": [0.8, 0.9], "when": {"solver": "sgdm"}},
      "depth": {"low": 1, "high": 3}}})");
  EXPECT_EQ(grid_trials(options).size(), 9u);  // 3 depths; sgdm with two momentums, adam
}

TEST(SweepSpace, RangesHaveTheirEndsAndScale) {
  const SweepOptions options = with_method("random");
  double low = 1, high = 0;
  int below = 0;
  int64_t least = 100, most = 0;
  for (int64_t i = 1; i <= 2000; ++i) {
    const TrialParameters trial = random_trial(options, i);
    const double rate = field(trial, "rate", 0);
    low = std::min(low, rate), high = std::max(high, rate), below += rate < 0.01;
    const auto width = static_cast<int64_t>(field(trial, "width", 0));
    least = std::min(least, width), most = std::max(most, width);
  }
  EXPECT_LT(low, 0.00011);
  EXPECT_GT(high, 0.9);
  EXPECT_NEAR(below, 1000, 100);  // half of the logarithms
  EXPECT_EQ(least, 4);
  EXPECT_EQ(most, 64);
}

TEST(SweepSpace, PositionsAreTheInverseOfValues) {
  for (const SweepParameter& p : with_method("random").parameters) {
    for (const double u : {0.01, 0.3, 0.77, 0.99}) {
      const std::string value = parameter_value(p, u);
      EXPECT_EQ(parameter_value(p, parameter_position(p, value)), value) << p.name;
    }
  }
}

TEST(Sobol, PointsOfJoeAndKuo) {
  // The first points of their generator, in 3 dimensions.
  const double expected[][3] = {
      {0, 0, 0}, {0.5, 0.5, 0.5}, {0.75, 0.25, 0.25}, {0.25, 0.75, 0.75}, {0.375, 0.375, 0.625}};
  // Here points come in the order of their index, there in Gray's.
  for (uint32_t i = 0; i < 5; ++i) {
    const uint32_t gray = i ^ (i >> 1);
    for (size_t d = 0; d < 3; ++d) EXPECT_EQ(sobol_bits(d, gray) / 4294967296.0, expected[i][d]);
  }
}

TEST(Sobol, EveryIntervalHasOnePointAlsoScrambled) {
  constexpr uint32_t n = 256;
  for (size_t d = 0; d < sobol_dimensions; ++d) {
    for (const uint64_t seed : {1, 2}) {
      std::vector<bool> hit(n, false);
      for (uint32_t i = 0; i < n; ++i) {
        hit[static_cast<size_t>(scrambled_sobol(seed, d, i) * n)] = true;
      }
      EXPECT_EQ(std::count(hit.begin(), hit.end(), true), n) << d;
    }
  }
  EXPECT_NE(scrambled_sobol(1, 0, 5), scrambled_sobol(2, 0, 5));
}

TEST(SweepTable, ReadsWhatItWrites) {
  const SweepOptions options = with_method("hyperband", R"("repeats": 2, "seed": 7, )");
  const std::string text = sweep_table_json(options).dump();
  EXPECT_EQ(sweep_table_json(read_sweep_table(json::parse(text))).dump(), text);
}

TEST(SweepTable, TomlOfValues) {
  EXPECT_EQ(toml_of_json("[1, [2.5, \"a\"]]"), "[1, [2.5, \"a\"]]");
  EXPECT_EQ(toml_of_json("{\"type\": \"relu\"}"), "{ \"type\" = \"relu\" }");
}

TEST(SweepTable, Refusals) {
  const auto error = [](const std::string& text) {
    return refusal<InvalidArgument>([&] { options_of(text); });
  };
  const auto parameter = [&](const std::string& p) {
    return error(R"({"method": "random", "trials": 3, "parameters": {)" + p + "}}");
  };
  EXPECT_CONTAINS(error("{}"), "[sweep] there are no parameters");
  EXPECT_CONTAINS(error(R"({"parameters": {"a": [1, 2]}})"), "[sweep] trials is missing");
  EXPECT_CONTAINS(error(R"({"methd": "grid", "parameters": {"a": [1]}})"), "`method`");
  EXPECT_CONTAINS(error(R"({"method": "gird", "parameters": {"a": [1]}})"), "did you mean `grid`?");
  EXPECT_CONTAINS(parameter(R"("a": 3)"), "[sweep.parameters] a: received the single value 3");
  EXPECT_CONTAINS(parameter(R"("a": [])"), "a: the list of values is empty");
  EXPECT_CONTAINS(parameter(R"("a": [1, 1])"), "a: the value 1 is listed twice");
  EXPECT_CONTAINS(parameter(R"("a": {"low": 1})"), "a: `high` is missing");
  EXPECT_CONTAINS(parameter(R"("a": {"low": 2, "high": 1})"), "`low` must not be larger");
  EXPECT_CONTAINS(parameter(R"("a": {"low": 0, "high": 1, "scale": "log"})"), "must be above 0");
  EXPECT_CONTAINS(parameter(R"("a": {"low": 0, "high": 1, "scael": "log"})"), "`scale`");
  EXPECT_CONTAINS(parameter(R"("a": {"low": 0.5, "high": 1, "integer": true})"), "whole numbers");
  EXPECT_CONTAINS(parameter(R"("a": {"values": [1], "when": {"b": 1}})"),
                  "which is not a parameter");
  EXPECT_CONTAINS(parameter(R"("a": {"values": [1], "when": {"b": 1}},
                               "b": {"values": [1], "when": {"a": 1}})"),
                  "depends on the parameter itself");
}

TEST(SweepTable, ConditionsThatCanNeverHoldAreRefused) {
  const auto error = [](const std::string& method, const std::string& p) {
    const std::string text =
        "{\"method\": \"" + method + "\", \"trials\": 3, \"parameters\": {" + p + "}}";
    try {
      const SweepOptions options = options_of(text);
      if (method == "grid") grid_trials(options);
    } catch (const InvalidArgument& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  const std::string lists = R"("s": ["x", "y"], "n": [1, 2.0], )";
  const std::string ranges = R"("i": {"low": 1, "high": 4}, "r": {"low": 0.5, "high": 1.0}, )";
  const auto one = [](const std::string& when) {
    return R"("a": {"values": [1], "when": )" + when + "}";
  };
  for (const std::string method : {"random", "grid"}) {
    const std::string stepped = R"("g": {"low": 0.0, "high": 1.0, "steps": 3}, )";
    for (const char* when :
         {R"({"s": "z"})", R"({"s": ["X", "Y"]})", R"({"s": {"low": 0}})", R"({"n": 3})",
          R"({"n": "1"})", R"({"n": {"low": 3}})", R"({"n": {"low": 1.2, "high": 1.8}})"}) {
      EXPECT_CONTAINS(error(method, lists + one(when)), "a: its condition can never be true");
    }
    for (const char* when : {R"({"s": "y"})", R"({"s": ["X", "y"]})", R"({"n": 2})",
                             R"({"n": 1.0})", R"({"n": {"low": 1.5}})", R"({"s": "x", "n": 1})"}) {
      EXPECT_EQ(error(method, lists + one(when)), "") << when;
    }
    // Conditions of the parameters that a condition names count as well.
    EXPECT_CONTAINS(error(method, lists + R"("b": {"values": [1, 2], "when": {"s": "x"}}, )" +
                                      one(R"({"b": 1, "s": "y"})")),
                    "a: its condition can never be true: it needs s = \"y\" and s = \"x\"");
    EXPECT_CONTAINS(error(method, stepped + one(R"({"g": 0.4})")), "a: its condition");
    EXPECT_CONTAINS(error(method, stepped + one(R"({"g": {"low": 0.6, "high": 0.9}})")),
                    method == "grid" ? "a: its condition is never true" : "");
  }
  for (const char* when : {R"({"i": 5})", R"({"i": 1.5})", R"({"i": {"low": 1.2, "high": 1.8}})",
                           R"({"i": {"low": 4.5}})", R"({"r": {"high": 0.4}})", R"({"r": 0.7})",
                           R"({"r": {"low": 0.9, "high": 0.8}})", R"({"r": "0.7"})"}) {
    EXPECT_CONTAINS(error("random", ranges + one(when)), "a: its condition can never be true");
  }
  for (const char* when : {R"({"i": 4})", R"({"i": [5, 1]})", R"({"r": {"low": 1}})"}) {
    EXPECT_EQ(error("random", ranges + one(when)), "") << when;
  }
  EXPECT_EQ(error("grid", R"("g": {"low": 0.0, "high": 1.0, "steps": 3}, )" + one(R"({"g": 0.5})")),
            "");
}

}  // namespace
}  // namespace lockstep
