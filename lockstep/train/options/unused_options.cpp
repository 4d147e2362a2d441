#include "lockstep/train/options/unused_options.h"

#include <algorithm>
#include <initializer_list>

#include "lockstep/base/text.h"
#include "lockstep/train/options/solver_info.h"

namespace lockstep {
namespace {

bool uses(const SolverInfo& solver, const std::string& option) {
  return std::ranges::find(solver.options, option) != solver.options.end();
}

// "the solvers adam and adamw": those that use an option.
std::string solvers_with(const std::string& option) {
  std::vector<std::string> names;
  for (const SolverInfo& solver : solver_registry()) {
    if (uses(solver, option)) names.push_back(solver.name);
  }
  return (names.size() == 1 ? "the solver " : "the solvers ") + list_of_some(names, names.size());
}

// Resolved options have a solver's own value instead of 0.
bool is_default_decay(double decay) {
  return decay == 0 || std::ranges::any_of(solver_registry(), [&](const SolverInfo& solver) {
           return decay == solver.squared_gradient_decay;
         });
}

}  // namespace

std::vector<std::string> unused_options(const TrainingOptions& options) {
  const TrainingOptions plain;
  std::vector<std::string> all;
  const auto note = [&](bool given, bool used, const char* name, const std::string& what) {
    if (given && !used) all.push_back(std::string(name) + " has no effect: it is for " + what);
  };
  const SolverOptions &solver = options.solver, &usual = plain.solver;
  const SolverInfo* const info = find_solver(solver.type);
  const auto note_solver = [&](bool given, const char* name) {
    note(given, !info || uses(*info, name), name, solvers_with(name));
  };
  note_solver(solver.momentum != usual.momentum, "momentum");
  note_solver(solver.nesterov, "nesterov");
  note_solver(solver.gradient_decay != usual.gradient_decay, "gradient_decay");
  note_solver(!is_default_decay(solver.squared_gradient_decay), "squared_gradient_decay");
  note_solver(solver.epsilon != usual.epsilon, "epsilon");
  note(solver.gradient_threshold_method != usual.gradient_threshold_method,
       solver.gradient_threshold > 0, "gradient_threshold_method", "a gradient_threshold above 0");

  const ScheduleOptions &schedule = options.schedule, &none = plain.schedule;
  const auto scheduled = [&](std::initializer_list<const char*> types) {
    return std::ranges::any_of(types, [&](const char* type) {
      return std::ranges::find(schedule.types, type) != schedule.types.end();
    });
  };
  note(!schedule.epochs.empty(), schedule.types != none.types, "schedule_epochs",
       "schedules of the learning rate, but learning_rate_schedule is \"none\"");
  note(schedule.drop_factor != none.drop_factor, scheduled({"piecewise", "exponential", "plateau"}),
       "drop_factor", "the schedules piecewise, exponential and plateau");
  note(schedule.drop_period != none.drop_period,
       scheduled({"piecewise", "exponential", "cyclical", "warm-restarts"}), "drop_period",
       "the schedules piecewise, exponential, cyclical and warm-restarts");
  note(schedule.power != none.power, scheduled({"polynomial"}), "schedule_power",
       "the schedule polynomial");
  note(schedule.final_factor != none.final_factor,
       scheduled({"polynomial", "cosine", "cyclical", "warm-restarts", "plateau"}), "final_factor",
       "the schedules polynomial, cosine, cyclical, warm-restarts and plateau");
  note(schedule.warmup_factor != none.warmup_factor, scheduled({"warmup"}), "warmup_factor",
       "the schedule warmup");
  const bool cycle = scheduled({"one-cycle"});
  note(schedule.rise_share != none.rise_share, cycle, "rise_share", "the schedule one-cycle");
  note(schedule.first_factor != none.first_factor, cycle, "first_factor", "the schedule one-cycle");
  note(schedule.last_factor != none.last_factor, cycle, "last_factor", "the schedule one-cycle");
  note(schedule.period_factor != none.period_factor, scheduled({"warm-restarts"}), "period_factor",
       "the schedule warm-restarts");
  const bool plateau = scheduled({"plateau"});
  note(schedule.plateau_patience != none.plateau_patience, plateau, "plateau_patience",
       "the schedule plateau");
  note(schedule.plateau_cooldown != none.plateau_cooldown, plateau, "plateau_cooldown",
       "the schedule plateau");
  note(schedule.plateau_threshold != none.plateau_threshold, plateau, "plateau_threshold",
       "the schedule plateau");
  return all;
}

}  // namespace lockstep
