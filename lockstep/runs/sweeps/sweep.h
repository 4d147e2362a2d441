// Sweeps in C++, with a function of the user as trial:
//
//   double train_one(const SweepTrial& trial) {   // on a worker; returns what is compared
//     const double rate = trial.number("rate");
//     ... train for trial.budget epochs in total, continuing from files in trial.folder ...
//   }
//
//   Pool pool({.workers = 4});
//   SweepOptions options{.trials = 27, .goal = "minimize"};
//   options.parameters = {sweep_range("rate", 1e-4, 1, true), sweep_integers("width", 4, 64)};
//   Sweep sweep({.options = options, .folder = "runs/sweep", .budget = 9});
//   const SweepOutcome outcome = sweep.run<&train_one>(pool);
//
// If the function's result depends on its argument alone, the outcome does not depend on the number
// or the speed of the workers. Job files need none of this: see `lockstep sweep`.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/parallel/pool/pool.h"
#include "lockstep/runs/jobs/sweep_table.h"
#include "lockstep/runs/sweeps/methods/sweep_method.h"

namespace lockstep {

// A run of a trial: what the function receives.
struct SweepTrial {
  int64_t index = 0;   // the trial's number in the sweep, from 1
  int64_t repeat = 0;  // from 0
  int64_t seed = 0;    // SweepOptions::seed + repeat: for the function's own random numbers
  // How far to go in total. The same trial may be called again with a larger budget, on another
  // worker; it then continues, or begins again and gives the same result.
  int64_t budget = 1;
  std::string folder = {};  // exists; for the function's files, the same at every budget
  TrialParameters parameters = {};

  // Whether the trial uses a parameter (see SweepCondition), and its value. Throw InvalidArgument
  // for a parameter that it does not use, or of another type.
  bool uses(const std::string& name) const;
  double number(const std::string& name) const;
  std::string text(const std::string& name) const;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(index, repeat, seed, budget, folder, parameters);
  }
};

// What a run returns to its sweep.
struct TrialReport {
  int32_t state = 0;         // TrialState of schedule.h
  bool interrupted = false;  // it can continue; the rest is without meaning
  std::string reason = {};
  double value = 0;
  int64_t iteration = 0, epoch = 0;
  std::vector<std::pair<std::string, double>> metrics = {};
  std::string receipt = {};

  template <class Archive>
  void serialize(Archive& archive) {
    archive(state, interrupted, reason, value, iteration, epoch, metrics, receipt);
  }
};

struct SweepOutcome {
  struct Trial {
    int64_t index = 0;
    TrialParameters parameters = {};
    // "finished", "pruned", "stopped", "diverged", "unbuildable", "open", and why.
    std::string state = {}, reason = {};
    int64_t budget = 0;            // that it has reached
    double value = 0, spread = 0;  // mean and standard deviation over the repeats, or NaN
  };
  bool finished = false;           // false: interrupted
  std::vector<Trial> trials = {};  // by index
  int64_t best = 0;                // index of the best trial; 0: none succeeded
};

struct SweepSettings {
  SweepOptions options = {};   // `goal` must be set; `metric` is only a name
  std::string folder = {};     // for the record (sweep.jsonl), trials.csv and the trials' folders
  int64_t budget = 1;          // of a complete trial
  SweepMethodPtr method = {};  // the user's own; null: the one that the options name
  // Continue the sweep in the folder, which may have more trials, repeats or budget than before.
  bool resume = false;
  std::function<bool()> interrupted = {};  // asked several times a second; true: stop
};

// One thread at a time.
class Sweep {
 public:
  // Throws InvalidArgument for settings that do not fit.
  explicit Sweep(SweepSettings settings);

  // Runs the sweep on the workers of a pool, and blocks until it ends. The function returns what is
  // compared. It fails the trial, and not the sweep, by InvalidArgument, Unsupported, Diverged or a
  // result that is not finite. A lost worker's run is started again. Other errors are those of the
  // machine: a run is started once more, and then the sweep ends with the error; it can be
  // continued. Throws also FileError, and InvalidArgument if the folder holds another sweep.
  template <auto F>
  SweepOutcome run(Pool& pool) {
    return run_calls(pool, [&pool](const SweepTrial& trial) {
      return pool.submit<&Sweep::report_of<F>>(trial);
    });
  }

 private:
  using Submit = std::function<Future<TrialReport>(const SweepTrial&)>;

  template <auto F>
  static TrialReport report_of(const SweepTrial& trial) {
    return report([&] { return F(trial); });
  }
  static TrialReport report(const std::function<double()>& run);
  SweepOutcome run_calls(Pool& pool, const Submit& submit);

  SweepSettings settings_;
};

}  // namespace lockstep
