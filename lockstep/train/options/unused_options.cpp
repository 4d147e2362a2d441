#include "lockstep/train/options/unused_options.h"

#include <algorithm>
#include <initializer_list>

namespace lockstep {

std::vector<std::string> unused_options(const TrainingOptions& options) {
  const TrainingOptions plain;
  std::vector<std::string> all;
  const auto note = [&](bool given, bool used, const char* name, const std::string& what) {
    if (given && !used) all.push_back(std::string(name) + " has no effect: it is for " + what);
  };
  const SolverOptions &solver = options.solver, &usual = plain.solver;
  const bool sgdm = solver.type == "sgdm", adam = solver.type == "adam" || solver.type == "adamw";
  note(solver.momentum != usual.momentum, sgdm, "momentum", "the solver sgdm");
  note(solver.nesterov, sgdm, "nesterov", "the solver sgdm");
  note(solver.gradient_decay != usual.gradient_decay, adam, "gradient_decay",
       "the solvers adam and adamw");
  note(solver.squared_gradient_decay != 0, !sgdm, "squared_gradient_decay",
       "the solvers adam, adamw and rmsprop");
  note(solver.epsilon != usual.epsilon, !sgdm, "epsilon", "the solvers adam, adamw and rmsprop");
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
