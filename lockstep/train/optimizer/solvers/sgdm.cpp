#include "lockstep/engine/kernels/backends/functions.h"
#include "lockstep/engine/kernels/solvers/solver.h"
#include "lockstep/train/optimizer/loop_update.h"
#include "lockstep/train/optimizer/registry.h"
#include "lockstep/train/optimizer/slot_solver.h"
#include "lockstep/train/optimizer/updates.h"
#include "lockstep/train/options/options.h"

namespace lockstep {
namespace {

kernels::SgdmUpdate numbers_of(const UpdateTarget& target, double observations,
                               const SgdmOptions& options) {
  return {static_cast<float>(observations),
          static_cast<float>(options.learning_rate * target.rate_factor),
          static_cast<float>(options.momentum), static_cast<float>(options.l2 * target.l2_factor),
          options.nesterov ? 1 : 0};
}

// `gradient_sum`: of the elements in `range`.
void update(const UpdateTarget& target, std::span<const Tensor> state, const IndexRange& range,
            const float* gradient_sum, const kernels::SgdmUpdate& numbers) {
  target.functions().sgdm(elements_of(target.value, range), elements_of(state[0], range),
                          gradient_sum, static_cast<size_t>(range.count), numbers, target.stream());
}

void update_all(const std::vector<NamedTarget>& targets, std::span<const Tensor> gradients,
                SgdmState& state, const SgdmOptions& options) {
  check_gradients("sgdm", targets, gradients);
  check_options("sgdm", options.learning_rate, options.l2);
  check_option("sgdm", "momentum", options.momentum, 0, 1);
  prepare_state("sgdm", targets, state.velocity);
  const auto numbers = numbers_of_all(
      targets, [&](const UpdateTarget& target) { return numbers_of(target, 1, options); });
  for_all_update_ranges(
      targets, options.pool, [&](const UpdateTarget& part, const UpdateRange& range) {
        const Tensor arrays[] = {part_of(state.velocity[range.array], range)};
        update(part, arrays, part.all(), elements_of(gradients[range.array]) + range.first,
               numbers[range.array]);
      });
}

class Sgdm final : public SlotSolver<kernels::SgdmUpdate, SgdmOptions> {
 public:
  Sgdm(Network& network, const TrainingOptions& options)
      : SlotSolver(network, options,
                   {.momentum = options.solver.momentum,
                    .nesterov = options.solver.nesterov,
                    .l2 = options.solver.l2},
                   solvers::sgdm().state, &kernels::Functions::sgdm_of_all) {}

 private:
  void update_slot(const UpdateSlot& s, const IndexRange& elements, const float* gradient_sum,
                   const kernels::SgdmUpdate& numbers) override {
    lockstep::update(s.target, s.state, elements, gradient_sum, numbers);
  }
  kernels::SgdmUpdate numbers_of(const UpdateTarget& target, const UpdateScalars& scalars,
                                 const SgdmOptions& now) const override {
    return lockstep::numbers_of(target, scalars.observations, now);
  }
};

}  // namespace

SolverInfo solvers::sgdm() {
  return {.name = "sgdm",
          .help =
              "stochastic gradient descent with momentum: v = momentum * v - rate * g; w = w + v; "
              "with nesterov w = w + momentum * v - rate * g",
          .options = {"momentum", "nesterov"},
          .initial_learning_rate = 0.01,
          .state = {"velocity"},
          .make = [](Network& network, const TrainingOptions& options) -> std::unique_ptr<Solver> {
            return std::make_unique<Sgdm>(network, options);
          },
          .try_kernels =
              [](const kernels::Functions& functions, void* stream) {
                functions.sgdm_of_all ? functions.sgdm_of_all({}, stream)
                                      : functions.sgdm(nullptr, nullptr, nullptr, 0, {}, stream);
              }};
}

void sgdm_update(Network& network, std::span<const Tensor> gradients, SgdmState& state,
                 const SgdmOptions& options) {
  update_all(named(network), gradients, state, options);
}
void sgdm_update(std::span<const Tensor> values, std::span<const Tensor> gradients,
                 SgdmState& state, const SgdmOptions& options) {
  update_all(named(values), gradients, state, options);
}

}  // namespace lockstep
