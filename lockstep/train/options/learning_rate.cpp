#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/train/options/options.h"

namespace lockstep {
namespace {

// The position of an iteration in a part of the schedule.
struct Progress {
  double done = 0;    // iterations of the part before this one
  double length = 1;  // iterations of the part
  double per_epoch = 1;
};

// Multiplies for integer powers, so that a rate with drops does not depend on pow().
double power(double base, int64_t exponent) {
  double result = 1;
  for (int64_t i = 0; i < exponent && result != 0; ++i) result *= base;
  return result;
}

constexpr double kPi = 3.14159265358979323846;

// Along half a cosine, from one value to another.
double along_cosine(double from, double to, double share) {
  return to + (from - to) * (1 + std::cos(kPi * share)) / 2;
}

double one_cycle(const ScheduleOptions& o, const Progress& p) {
  const double top = o.rise_share * p.length - 1;  // the iteration with the highest rate
  const double at = std::min(p.done, p.length - 1);
  if (at <= top) return along_cosine(o.first_factor, 1, top > 0 ? at / top : 1);
  return along_cosine(1, o.last_factor, (at - top) / (p.length - 1 - top));
}

double warm_restarts(const ScheduleOptions& o, const Progress& p) {
  double period = std::max(1.0, p.per_epoch * static_cast<double>(o.drop_period));
  double at = p.done;
  if (o.period_factor == 1) at = std::fmod(at, period);
  for (; at >= period; period *= o.period_factor) at -= period;
  return along_cosine(1, o.final_factor, at / period);
}

// `first`, `last`: the iterations after which validations count.
double plateau(const TrainingOptions& options, double first, double last,
               std::span<const ObjectiveValue> validations) {
  const ScheduleOptions& o = options.schedule;
  const bool larger =
      larger_is_better(options.validation.objective, options.validation.custom_metrics);
  const double away = larger ? 1 + o.plateau_threshold : 1 - o.plateau_threshold;
  double best =
      larger ? -std::numeric_limits<double>::infinity() : std::numeric_limits<double>::infinity();
  double factor = 1;
  int64_t without = 0, cooldown = 0;
  for (const ObjectiveValue& v : validations) {
    const auto after = static_cast<double>(v.iteration);
    if (after < first || after > last) continue;
    const bool better = larger ? v.value > best * away : v.value < best * away;
    without = better ? 0 : without + 1;
    if (better) best = v.value;
    if (cooldown > 0) --cooldown, without = 0;
    if (without <= o.plateau_patience) continue;
    factor = std::max(factor * o.drop_factor, o.final_factor);
    cooldown = o.plateau_cooldown;
    without = 0;
  }
  return factor;
}

// The rate as a multiple of the rate at which the part starts.
double factor(const std::string& name, const TrainingOptions& o, const Progress& p) {
  const double share = std::min(1.0, p.done / p.length), end = o.schedule.final_factor;
  if (name == "piecewise") {
    // The final rate of the part is the rate of its last iteration.
    const double done = std::min(p.done, p.length - 1);
    const auto epoch = static_cast<int64_t>(std::floor(done / p.per_epoch));
    return power(o.schedule.drop_factor, epoch / o.schedule.drop_period);
  }
  if (name == "exponential") {
    const double period = p.per_epoch * static_cast<double>(o.schedule.drop_period);
    return std::pow(o.schedule.drop_factor, p.done / period);
  }
  if (name == "polynomial") return end + (1 - end) * std::pow(1 - share, o.schedule.power);
  if (name == "one-cycle") return one_cycle(o.schedule, p);
  if (name == "warm-restarts") return warm_restarts(o.schedule, p);
  if (name == "cosine") {
    return end + (1 - end) * (1 + std::cos(kPi * share)) / 2;
  }
  if (name == "cyclical") {
    const double cycle = std::max(1.0, p.per_epoch * static_cast<double>(o.schedule.drop_period));
    const double at = std::fmod(p.done, cycle) / cycle;  // falls, then rises
    return end + (1 - end) * std::abs(1 - 2 * at);
  }
  if (name == "warmup") {
    return std::min(1.0, o.schedule.warmup_factor + (1 - o.schedule.warmup_factor) *
                                                        std::min(1.0, (p.done + 1) / p.length));
  }
  return 1;
}

// Iterations of the part that starts after `begin` iterations. A part without an entry in
// schedule_epochs lasts to the end of max_epochs.
double part_length(const TrainingOptions& options, size_t part, double begin, double per_epoch) {
  const double length = part < options.schedule.epochs.size()
                            ? std::round(options.schedule.epochs[part] * per_epoch)
                            : per_epoch * static_cast<double>(options.max_epochs) - begin;
  return std::max(1.0, length);
}

}  // namespace

double learning_rate_of(const TrainingOptions& options, int64_t iteration,
                        int64_t iterations_per_epoch, std::span<const ObjectiveValue> validations) {
  if (options.schedule.function) {
    const double rate =
        options.schedule.function({.iteration = iteration,
                                   .epoch = (iteration - 1) / iterations_per_epoch + 1,
                                   .iterations_per_epoch = iterations_per_epoch,
                                   .initial_learning_rate = options.solver.initial_learning_rate});
    if (!std::isfinite(rate) || rate < 0) {
      throw InvalidArgument("[training] schedule.function returned " + std::to_string(rate) +
                            " for iteration " + std::to_string(iteration));
    }
    return rate;
  }
  const auto per_epoch = static_cast<double>(iterations_per_epoch);
  double rate = options.solver.initial_learning_rate, begin = 0;
  const auto& names = options.schedule.types;
  const auto multiple = [&](const std::string& name, const Progress& p) {
    if (name != "plateau") return factor(name, options, p);
    return plateau(options, begin + 1, begin + p.done, validations);
  };
  for (size_t i = 0; i < names.size(); ++i) {
    const bool last = i + 1 == names.size();
    const bool bounded = i < options.schedule.epochs.size();
    const double length = part_length(options, i, begin, per_epoch);
    const double done = static_cast<double>(iteration - 1) - begin;
    if (last || done < length) {
      // A last part with an entry in schedule_epochs keeps its final rate afterwards.
      const double at = bounded ? std::min(done, length) : done;
      return rate * multiple(names[i], {at, length, per_epoch});
    }
    rate *= multiple(names[i], {length, length, per_epoch});
    begin += length;
  }
  return rate;
}

bool rates_depend_on_length(const std::string& schedule) {
  return schedule == "polynomial" || schedule == "cosine" || schedule == "warmup" ||
         schedule == "one-cycle";
}

bool rates_depend_on_validations(const TrainingOptions& options) {
  const auto& names = options.schedule.types;
  return !options.schedule.function &&
         std::find(names.begin(), names.end(), "plateau") != names.end();
}

std::vector<double> schedule_lengths(const TrainingOptions& options, int64_t iterations_per_epoch) {
  std::vector<double> lengths;
  if (options.schedule.function) return lengths;
  double begin = 0;
  const auto& names = options.schedule.types;
  for (size_t i = 0; i < names.size(); ++i) {
    if (i >= options.schedule.epochs.size() && !rates_depend_on_length(names[i])) break;
    lengths.push_back(part_length(options, i, begin, static_cast<double>(iterations_per_epoch)));
    begin += lengths.back();
  }
  return lengths;
}

}  // namespace lockstep
