#include "lockstep/train/optimizer/solver.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/suggest.h"
#include "lockstep/engine/device/device_memory.h"
#include "lockstep/engine/kernels/backends/table.h"
#include "lockstep/train/optimizer/gradient_threshold.h"
#include "lockstep/train/optimizer/updates.h"

namespace lockstep {
namespace {

struct Slot {
  UpdateTarget target;
  std::vector<Tensor> state;
  bool frozen = false;
};

std::vector<Slot> slots_of(Network& network, size_t arrays, const TrainingOptions& options) {
  check_frozen(network, options.freeze);
  std::vector<Slot> slots;
  for (const auto& l : network.parameters()) {
    Slot slot{{l.value, l.spec.learning_rate_factor, l.spec.l2_factor},
              {},
              is_frozen(l.name, options.freeze)};
    for (size_t i = 0; i < arrays; ++i)
      slot.state.push_back(Tensor::zeros(l.value.shape(), DType::f32, l.value.device()));
    slots.push_back(std::move(slot));
  }
  return slots;
}

// The common part of the solvers: slots, and frozen parameters that do not change.
class SlotSolver : public Solver {
 public:
  SlotSolver(Network& network, const TrainingOptions& options, std::vector<std::string> names)
      : options_(options), names_(std::move(names)) {
    slots_ = slots_of(network, names_.size(), options);
  }

  void update(size_t index, const float* gradient_sum, const UpdateScalars& scalars) final {
    Slot& s = slots_[index];
    if (!s.frozen) update(s, gradient_sum, scalars);
  }
  UpdateNumbers numbers(size_t index, const UpdateScalars& scalars) const final {
    return numbers(slots_[index].target, scalars);
  }
  std::vector<Tensor> state(size_t index) const final { return slots_[index].state; }
  std::vector<std::string> state_names() const final { return names_; }

 protected:
  const TrainingOptions& options() const { return options_; }

 private:
  virtual void update(Slot& s, const float* gradient_sum, const UpdateScalars& scalars) = 0;
  virtual UpdateNumbers numbers(const UpdateTarget& target, const UpdateScalars& scalars) const = 0;

  const TrainingOptions options_;
  const std::vector<std::string> names_;
  std::vector<Slot> slots_;
};

class Sgdm final : public SlotSolver {
 public:
  Sgdm(Network& network, const TrainingOptions& options)
      : SlotSolver(network, options, {"velocity"}) {}

 private:
  void update(Slot& s, const float* gradient_sum, const UpdateScalars& scalars) override {
    update_by_sgdm(s.target, s.state, gradient_sum, scalars.observations, now(scalars));
  }
  UpdateNumbers numbers(const UpdateTarget& target, const UpdateScalars& scalars) const override {
    return sgdm_numbers(target, scalars.observations, now(scalars));
  }
  SgdmOptions now(const UpdateScalars& scalars) const {
    return {
        .learning_rate = scalars.learning_rate, .momentum = options().momentum, .l2 = options().l2};
  }
};

// For adam and adamw.
class Adam final : public SlotSolver {
 public:
  Adam(Network& network, const TrainingOptions& options)
      : SlotSolver(network, options, {"mean", "square"}) {}

 private:
  void update(Slot& s, const float* gradient_sum, const UpdateScalars& scalars) override {
    update_by_adam(s.target, s.state, gradient_sum, scalars.observations, now(scalars),
                   scalars.iteration, decoupled());
  }
  UpdateNumbers numbers(const UpdateTarget& target, const UpdateScalars& scalars) const override {
    return adam_numbers(target, scalars.observations, now(scalars), scalars.iteration, decoupled());
  }
  AdamOptions now(const UpdateScalars& scalars) const {
    return {.learning_rate = scalars.learning_rate,
            .gradient_decay = options().gradient_decay,
            .squared_gradient_decay = options().squared_gradient_decay,
            .epsilon = options().epsilon,
            .l2 = options().l2};
  }
  bool decoupled() const { return options().solver == "adamw"; }
};

class Rmsprop final : public SlotSolver {
 public:
  Rmsprop(Network& network, const TrainingOptions& options)
      : SlotSolver(network, options, {"square"}) {}

 private:
  void update(Slot& s, const float* gradient_sum, const UpdateScalars& scalars) override {
    update_by_rmsprop(s.target, s.state, gradient_sum, scalars.observations, now(scalars));
  }
  UpdateNumbers numbers(const UpdateTarget& target, const UpdateScalars& scalars) const override {
    return rmsprop_numbers(target, scalars.observations, now(scalars));
  }
  RmspropOptions now(const UpdateScalars& scalars) const {
    return {.learning_rate = scalars.learning_rate,
            .squared_gradient_decay = options().squared_gradient_decay,
            .epsilon = options().epsilon,
            .l2 = options().l2};
  }
};

}  // namespace

bool is_frozen(const std::string& parameter, const std::vector<std::string>& frozen) {
  const std::string layer = parameter.substr(0, parameter.rfind('.'));
  return std::find(frozen.begin(), frozen.end(), layer) != frozen.end();
}

void check_frozen(const Network& network, const std::vector<std::string>& frozen) {
  std::vector<std::string> names;
  for (const auto& layer : network.layers()) names.push_back(layer.name);
  for (const auto& name : frozen) {
    if (std::find(names.begin(), names.end(), name) != names.end()) continue;
    throw InvalidArgument("[training] freeze names `" + name + "`, which is no layer",
                          suggest(name, names));
  }
}

void try_updates(Device device, const TrainingOptions& options) {
  const kernels::Table& table = kernels::table_for(device);
  void* const queue = default_stream_of(device);
  table.add(nullptr, nullptr, nullptr, 0, queue);
  // Tries the update of all parameters at once if the device has it.
  if (options.solver == "sgdm") {
    table.sgdm_of_all ? table.sgdm_of_all({}, queue)
                      : table.sgdm(nullptr, nullptr, nullptr, 0, {}, queue);
  }
  if (options.solver.starts_with("adam")) {
    table.adam_of_all ? table.adam_of_all({}, queue)
                      : table.adam(nullptr, nullptr, nullptr, nullptr, 0, {}, queue);
  }
  if (options.solver == "rmsprop") {
    table.rmsprop_of_all ? table.rmsprop_of_all({}, queue)
                         : table.rmsprop(nullptr, nullptr, nullptr, 0, {}, queue);
  }
  const GradientThreshold threshold{options.gradient_threshold, options.gradient_threshold_method};
  if (!threshold.wanted()) return;
  if (threshold.of_elements()) {
    table.limit(nullptr, 0, 0, queue);
  } else {
    table.block_squares(nullptr, 0, nullptr, queue);
  }
}

size_t solver_arrays(const TrainingOptions& options) {
  return options.solver.starts_with("adam") ? 2 : 1;
}

std::unique_ptr<Solver> make_solver(Network& network, const TrainingOptions& options) {
  if (!network.initialized()) throw InvalidArgument("[solver] the network is not initialized");
  const TrainingOptions filled_in = options.resolved();
  if (options.solver == "sgdm") return std::make_unique<Sgdm>(network, filled_in);
  if (options.solver == "adam" || options.solver == "adamw") {
    return std::make_unique<Adam>(network, filled_in);
  }
  if (options.solver == "rmsprop") return std::make_unique<Rmsprop>(network, filled_in);
  throw InvalidArgument("[training] unknown solver `" + options.solver + "`",
                        "known solvers: sgdm, adam, adamw, rmsprop");
}

}  // namespace lockstep
