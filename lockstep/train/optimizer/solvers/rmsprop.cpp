#include "lockstep/engine/kernels/backends/functions.h"
#include "lockstep/engine/kernels/solvers/solver.h"
#include "lockstep/train/optimizer/loop_update.h"
#include "lockstep/train/optimizer/registry.h"
#include "lockstep/train/optimizer/slot_solver.h"
#include "lockstep/train/optimizer/updates.h"
#include "lockstep/train/options/options.h"

namespace lockstep {
namespace {

kernels::RmspropUpdate numbers_of(const UpdateTarget& target, double observations,
                                  const RmspropOptions& options) {
  return {static_cast<float>(observations),
          static_cast<float>(options.learning_rate * target.rate_factor),
          options.squared_gradient_decay, static_cast<float>(options.epsilon),
          static_cast<float>(options.l2 * target.l2_factor)};
}

// `gradient_sum`: of the elements in `range`.
void update(const UpdateTarget& target, std::span<const Tensor> state, const IndexRange& range,
            const float* gradient_sum, const kernels::RmspropUpdate& numbers) {
  target.functions().rmsprop(elements_of(target.value, range), elements_of(state[0], range),
                             gradient_sum, static_cast<size_t>(range.count), numbers,
                             target.stream());
}

void update_all(const std::vector<NamedTarget>& targets, std::span<const Tensor> gradients,
                RmspropState& state, const RmspropOptions& options) {
  check_gradients("rmsprop", targets, gradients);
  check_options("rmsprop", options.learning_rate, options.l2);
  check_option("rmsprop", "squared_gradient_decay", options.squared_gradient_decay, 0, 1);
  check_option("rmsprop", "epsilon", options.epsilon, 0, kInfinite);
  prepare_state("rmsprop", targets, state.square);
  const auto numbers = numbers_of_all(
      targets, [&](const UpdateTarget& target) { return numbers_of(target, 1, options); });
  for_all_update_ranges(
      targets, options.pool, [&](const UpdateTarget& part, const UpdateRange& range) {
        const Tensor arrays[] = {part_of(state.square[range.array], range)};
        update(part, arrays, part.all(), elements_of(gradients[range.array]) + range.first,
               numbers[range.array]);
      });
}

class Rmsprop final : public SlotSolver<kernels::RmspropUpdate, RmspropOptions> {
 public:
  Rmsprop(Network& network, const TrainingOptions& options)
      : SlotSolver(network, options,
                   {.squared_gradient_decay = options.solver.squared_gradient_decay,
                    .epsilon = options.solver.epsilon,
                    .l2 = options.solver.l2},
                   solvers::rmsprop().state, &kernels::Functions::rmsprop_of_all) {}

 private:
  void update_slot(const UpdateSlot& s, const IndexRange& elements, const float* gradient_sum,
                   const kernels::RmspropUpdate& numbers) override {
    lockstep::update(s.target, s.state, elements, gradient_sum, numbers);
  }
  kernels::RmspropUpdate numbers_of(const UpdateTarget& target, const UpdateScalars& scalars,
                                    const RmspropOptions& now) const override {
    return lockstep::numbers_of(target, scalars.observations, now);
  }
};

}  // namespace

SolverInfo solvers::rmsprop() {
  return {.name = "rmsprop",
          .help = "Tieleman, Hinton 2012",
          .options = {"squared_gradient_decay", "epsilon"},
          .squared_gradient_decay = 0.9,
          .state = {"square"},
          .make = [](Network& network, const TrainingOptions& options) -> std::unique_ptr<Solver> {
            return std::make_unique<Rmsprop>(network, options);
          },
          .try_kernels =
              [](const kernels::Functions& functions, void* stream) {
                functions.rmsprop_of_all
                    ? functions.rmsprop_of_all({}, stream)
                    : functions.rmsprop(nullptr, nullptr, nullptr, 0, {}, stream);
              }};
}

void rmsprop_update(Network& network, std::span<const Tensor> gradients, RmspropState& state,
                    const RmspropOptions& options) {
  update_all(named(network), gradients, state, options);
}
void rmsprop_update(std::span<const Tensor> values, std::span<const Tensor> gradients,
                    RmspropState& state, const RmspropOptions& options) {
  update_all(named(values), gradients, state, options);
}

}  // namespace lockstep
