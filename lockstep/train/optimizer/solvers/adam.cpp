#include <cmath>

#include "lockstep/engine/kernels/backends/functions.h"
#include "lockstep/engine/kernels/solvers/solver.h"
#include "lockstep/train/optimizer/loop_update.h"
#include "lockstep/train/optimizer/registry.h"
#include "lockstep/train/optimizer/slot_solver.h"
#include "lockstep/train/optimizer/updates.h"
#include "lockstep/train/options/options.h"

namespace lockstep {
namespace {

kernels::AdamUpdate numbers_of(const UpdateTarget& target, double observations,
                               const AdamOptions& options, int64_t iteration, bool decoupled) {
  const double l2 = options.l2 * target.l2_factor;
  const double rate = options.learning_rate * target.rate_factor;
  const auto t = static_cast<double>(iteration);
  const double first = 1 - std::pow(options.gradient_decay, t);
  const double second = 1 - std::pow(options.squared_gradient_decay, t);
  return {static_cast<float>(observations),
          static_cast<float>(rate / first),
          options.gradient_decay,
          options.squared_gradient_decay,
          static_cast<float>(1 / std::sqrt(second)),
          static_cast<float>(options.epsilon),
          static_cast<float>(decoupled ? 0 : l2),
          static_cast<float>(decoupled ? rate * l2 : 0)};
}

// `gradient_sum`: of the elements in `range`.
void update(const UpdateTarget& target, std::span<const Tensor> state, const IndexRange& range,
            const float* gradient_sum, const kernels::AdamUpdate& numbers) {
  target.functions().adam(elements_of(target.value, range), elements_of(state[0], range),
                          elements_of(state[1], range), gradient_sum,
                          static_cast<size_t>(range.count), numbers, target.stream());
}

void update_all(const std::vector<NamedTarget>& targets, std::span<const Tensor> gradients,
                AdamState& state, const AdamOptions& options, bool decoupled) {
  const std::string name = decoupled ? "adamw" : "adam";
  check_gradients(name, targets, gradients);
  check_options(name, options.learning_rate, options.l2);
  check_option(name, "gradient_decay", options.gradient_decay, 0, 1);
  check_option(name, "squared_gradient_decay", options.squared_gradient_decay, 0, 1);
  check_option(name, "epsilon", options.epsilon, 0, kInfinite);
  prepare_state(name, targets, state.mean);
  prepare_state(name, targets, state.square);
  ++state.iteration;
  const auto numbers = numbers_of_all(targets, [&](const UpdateTarget& target) {
    return numbers_of(target, 1, options, state.iteration, decoupled);
  });
  for_all_update_ranges(
      targets, options.pool, [&](const UpdateTarget& part, const UpdateRange& range) {
        const Tensor arrays[] = {part_of(state.mean[range.array], range),
                                 part_of(state.square[range.array], range)};
        update(part, arrays, part.all(), elements_of(gradients[range.array]) + range.first,
               numbers[range.array]);
      });
}

// adam, or adamw if `decoupled`.
class Adam final : public SlotSolver<kernels::AdamUpdate, AdamOptions> {
 public:
  Adam(Network& network, const TrainingOptions& options, bool decoupled)
      : SlotSolver(network, options,
                   {.gradient_decay = options.solver.gradient_decay,
                    .squared_gradient_decay = options.solver.squared_gradient_decay,
                    .epsilon = options.solver.epsilon,
                    .l2 = options.solver.l2},
                   solvers::adam().state, &kernels::Functions::adam_of_all),
        decoupled_(decoupled) {}

 private:
  void update_slot(const UpdateSlot& s, const IndexRange& elements, const float* gradient_sum,
                   const kernels::AdamUpdate& numbers) override {
    lockstep::update(s.target, s.state, elements, gradient_sum, numbers);
  }
  kernels::AdamUpdate numbers_of(const UpdateTarget& target, const UpdateScalars& scalars,
                                 const AdamOptions& now) const override {
    return lockstep::numbers_of(target, scalars.observations, now, scalars.iteration, decoupled_);
  }

  const bool decoupled_;
};

void try_kernels(const kernels::Functions& functions, void* stream) {
  functions.adam_of_all ? functions.adam_of_all({}, stream)
                        : functions.adam(nullptr, nullptr, nullptr, nullptr, 0, {}, stream);
}

}  // namespace

SolverInfo solvers::adam() {
  return {.name = "adam",
          .help = "Kingma, Ba 2015, with bias correction",
          .options = {"gradient_decay", "squared_gradient_decay", "epsilon"},
          .state = {"mean", "square"},
          .make = [](Network& network, const TrainingOptions& options) -> std::unique_ptr<Solver> {
            return std::make_unique<Adam>(network, options, false);
          },
          .try_kernels = try_kernels};
}

SolverInfo solvers::adamw() {
  SolverInfo info = adam();
  info.name = "adamw";
  info.help =
      "adam, with w = w - rate * l2 * factor * w separate from the gradient (Loshchilov, Hutter "
      "2019)";
  info.make = [](Network& network, const TrainingOptions& options) -> std::unique_ptr<Solver> {
    return std::make_unique<Adam>(network, options, true);
  };
  return info;
}

void adam_update(Network& network, std::span<const Tensor> gradients, AdamState& state,
                 const AdamOptions& options) {
  update_all(named(network), gradients, state, options, false);
}
void adam_update(std::span<const Tensor> values, std::span<const Tensor> gradients,
                 AdamState& state, const AdamOptions& options) {
  update_all(named(values), gradients, state, options, false);
}

void adamw_update(Network& network, std::span<const Tensor> gradients, AdamState& state,
                  const AdamOptions& options) {
  update_all(named(network), gradients, state, options, true);
}
void adamw_update(std::span<const Tensor> values, std::span<const Tensor> gradients,
                  AdamState& state, const AdamOptions& options) {
  update_all(named(values), gradients, state, options, true);
}

}  // namespace lockstep
