#include "lockstep/train/solver.h"

#include <algorithm>
#include <cmath>

#include "lockstep/base/error.h"
#include "lockstep/base/suggest.h"
#include "lockstep/engine/kernels/table.h"
#include "lockstep/engine/tensor/device_memory.h"

namespace lockstep {
namespace {

struct Slot {
  Tensor value;
  double rate_factor, l2_factor;
  std::vector<Tensor> state;
  bool frozen = false;
};

float* values(const Tensor& tensor) { return static_cast<float*>(tensor.raw()); }

// Where a device's updates are added; the CPU has none.
void* queue_of(Device device) {
  return device == Device{} ? nullptr : memory_of(device).default_queue();
}

std::vector<Slot> slots_of(Network& network, size_t arrays, const TrainingOptions& options) {
  check_frozen(network, options.freeze);
  std::vector<Slot> slots;
  for (const auto& l : network.learnables()) {
    Slot slot{l.value, l.spec.learning_rate_factor, l.spec.l2_factor, {}};
    slot.frozen = is_frozen(l.name, options.freeze);
    for (size_t i = 0; i < arrays; ++i)
      slot.state.push_back(Tensor::zeros(l.value.shape(), DType::f32, l.value.device()));
    slots.push_back(std::move(slot));
  }
  return slots;
}

// What all have in common: slots, and what is frozen stays.
class SlotSolver : public Solver {
 public:
  SlotSolver(Network& network, const TrainingOptions& options, std::vector<std::string> names)
      : options_(options), names_(std::move(names)) {
    slots_ = slots_of(network, names_.size(), options);
  }

  void update(size_t index, const float* gradient_sum, const UpdateScalars& scalars) final {
    Slot& s = slots_[index];
    if (s.frozen) return;
    const Device device = s.value.device();
    update(s, kernels::table_for(device), gradient_sum, scalars, queue_of(device));
  }
  std::vector<Tensor> state(size_t index) const final { return slots_[index].state; }
  std::vector<std::string> state_names() const final { return names_; }

 protected:
  const TrainingOptions& options() const { return options_; }

 private:
  virtual void update(Slot& s, const kernels::Table& table, const float* gradient_sum,
                      const UpdateScalars& scalars, void* queue) = 0;

  const TrainingOptions options_;
  const std::vector<std::string> names_;
  std::vector<Slot> slots_;
};

size_t count_of(const Slot& s) { return static_cast<size_t>(s.value.shape().elements()); }

class Sgdm final : public SlotSolver {
 public:
  Sgdm(Network& network, const TrainingOptions& options)
      : SlotSolver(network, options, {"velocity"}) {}

 private:
  void update(Slot& s, const kernels::Table& table, const float* gradient_sum,
              const UpdateScalars& scalars, void* queue) override {
    const kernels::SgdmUpdate u{static_cast<float>(scalars.observations),
                                static_cast<float>(scalars.learning_rate * s.rate_factor),
                                static_cast<float>(options().momentum),
                                static_cast<float>(options().l2 * s.l2_factor)};
    table.sgdm(values(s.value), values(s.state[0]), gradient_sum, count_of(s), u, queue);
  }
};

// adam and adamw: what l2 is times decides.
class Adam final : public SlotSolver {
 public:
  Adam(Network& network, const TrainingOptions& options)
      : SlotSolver(network, options, {"mean", "square"}) {}

 private:
  void update(Slot& s, const kernels::Table& table, const float* gradient_sum,
              const UpdateScalars& scalars, void* queue) override {
    const TrainingOptions& o = options();
    const bool apart = o.solver == "adamw";
    const double l2 = o.l2 * s.l2_factor, rate = scalars.learning_rate * s.rate_factor;
    const auto t = static_cast<double>(scalars.iteration);
    const double first = 1 - std::pow(o.gradient_decay, t);
    const double second = 1 - std::pow(o.squared_gradient_decay, t);
    const kernels::AdamUpdate u{static_cast<float>(scalars.observations),
                                static_cast<float>(rate / first),
                                o.gradient_decay,
                                o.squared_gradient_decay,
                                static_cast<float>(1 / std::sqrt(second)),
                                static_cast<float>(o.epsilon),
                                static_cast<float>(apart ? 0 : l2),
                                static_cast<float>(apart ? rate * l2 : 0)};
    table.adam(values(s.value), values(s.state[0]), values(s.state[1]), gradient_sum, count_of(s),
               u, queue);
  }
};

class Rmsprop final : public SlotSolver {
 public:
  Rmsprop(Network& network, const TrainingOptions& options)
      : SlotSolver(network, options, {"square"}) {}

 private:
  void update(Slot& s, const kernels::Table& table, const float* gradient_sum,
              const UpdateScalars& scalars, void* queue) override {
    const TrainingOptions& o = options();
    const kernels::RmspropUpdate u{static_cast<float>(scalars.observations),
                                   static_cast<float>(scalars.learning_rate * s.rate_factor),
                                   o.squared_gradient_decay, static_cast<float>(o.epsilon),
                                   static_cast<float>(o.l2 * s.l2_factor)};
    table.rmsprop(values(s.value), values(s.state[0]), gradient_sum, count_of(s), u, queue);
  }
};

}  // namespace

bool is_frozen(const std::string& learnable, const std::vector<std::string>& frozen) {
  const std::string layer = learnable.substr(0, learnable.rfind('.'));
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
  void* const queue = queue_of(device);
  table.add(nullptr, nullptr, nullptr, 0, queue);
  if (options.solver == "sgdm") table.sgdm(nullptr, nullptr, nullptr, 0, {}, queue);
  if (options.solver.starts_with("adam")) {
    table.adam(nullptr, nullptr, nullptr, nullptr, 0, {}, queue);
  }
  if (options.solver == "rmsprop") table.rmsprop(nullptr, nullptr, nullptr, 0, {}, queue);
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
