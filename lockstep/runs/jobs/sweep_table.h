// The table [sweep] of a job file: which trials a sweep has.
//
//   [sweep]
//   method = "successive-halving"
//   trials = 9
//   [sweep.parameters]
//   initial_learning_rate = { low = 0.001, high = 0.3, scale = "log" }
//   width = [8, 16, 32]
//   momentum = { values = [0.8, 0.9], when = { solver = "sgdm" } }
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/fields.h"

namespace lockstep {

// A parameter is used only in trials in which another one, `parameter`, has one of these values.
struct SweepCondition {
  std::string parameter;
  std::vector<std::string> values = {};  // JSON; empty: any number from low to high
  double low = 0, high = 0;
};

// One parameter of a sweep: a list of values, or a range of numbers.
struct SweepParameter {
  std::string name;                      // as a key of `--set`
  std::vector<std::string> values = {};  // JSON of each; empty: a range
  double low = 0, high = 0;              // both included
  bool logarithmic = false;              // evenly distributed logarithms
  bool integer = false;
  int64_t steps = 0;                      // number of values in grids; 0: all integers of the range
  std::vector<SweepCondition> when = {};  // all must hold
};

// A list of values (whole numbers, numbers or texts), and a range of numbers.
SweepParameter sweep_values(const std::string& name, const std::vector<int64_t>& values);
SweepParameter sweep_values(const std::string& name, const std::vector<double>& values);
SweepParameter sweep_values(const std::string& name, const std::vector<std::string>& values);
SweepParameter sweep_range(const std::string& name, double low, double high,
                           bool logarithmic = false);
SweepParameter sweep_integers(const std::string& name, int64_t low, int64_t high,
                              bool logarithmic = false);

// Name and value (JSON) of each parameter that a trial uses, in the order of the sweep's options.
using TrialParameters = std::vector<std::pair<std::string, std::string>>;

struct SweepOptions {
  // "grid", "random", "sobol", "successive-halving", "hyperband" or "tpe".
  std::string method = "successive-halving";
  // How "successive-halving" and "hyperband" choose the parameters: "random", "sobol" or "grid".
  std::string draws = "random";
  // What is compared, always of the validation data: "accuracy", "loss" or another metric of the
  // job. "": the job's objective if it names one, else the accuracy of networks that learn labels,
  // or the loss.
  std::string metric;
  std::string goal;    // "minimize" or "maximize"; "": by the metric
  int64_t trials = 0;  // 0: all of a grid
  int64_t seed = 0;    // of the draws
  // Runs of each trial, with training.seed raised by 0, 1, ... The trial's result is their mean.
  int64_t repeats = 1;
  // Halving: epochs at which the trials are compared. Empty: min_epochs, multiplied by `reduction`
  // until the end.
  std::vector<int64_t> rungs = {};
  int64_t min_epochs = 1;
  int64_t reduction = 3;      // halving: one trial in this many goes on
  int64_t window = 4;         // tpe: a trial is chosen by the results of those this many before it
  int64_t random_trials = 8;  // tpe: the first ones, which are drawn at random

  std::vector<SweepParameter> parameters = {};

  void visit(FieldVisitor& v);
  // Throws InvalidArgument for values that contradict each other.
  void check() const;
};

// Reads the table from its JSON form. Throws InvalidArgument naming the field.
SweepOptions read_sweep_table(const nlohmann::json& table);
// The table in the form that read_sweep_table() reads.
nlohmann::ordered_json sweep_table_json(const SweepOptions& options);

// A JSON value as TOML, for `--set`.
std::string toml_of_json(const std::string& json);

}  // namespace lockstep
