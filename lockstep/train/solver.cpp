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

class Sgdm final : public Solver {
 public:
  Sgdm(Network& network, const TrainingOptions& options)
      : momentum_(options.momentum), l2_(options.l2), slots_(slots_of(network, 1, options)) {}

  void update(size_t index, const float* gradient_sum, const UpdateScalars& scalars) override {
    Slot& s = slots_[index];
    if (s.frozen) return;
    const kernels::SgdmUpdate u{static_cast<float>(scalars.observations),
                                static_cast<float>(scalars.learning_rate * s.rate_factor),
                                static_cast<float>(momentum_),
                                static_cast<float>(l2_ * s.l2_factor)};
    kernels::table_for(s.value.device())
        .sgdm(values(s.value), values(s.state[0]), gradient_sum,
              static_cast<size_t>(s.value.shape().elements()), u, queue_of(s.value.device()));
  }
  std::vector<Tensor> state(size_t index) const override { return slots_[index].state; }
  std::vector<std::string> state_names() const override { return {"velocity"}; }

 private:
  double momentum_, l2_;
  std::vector<Slot> slots_;
};

// adam and adamw: what l2 is times decides.
class Adam final : public Solver {
 public:
  Adam(Network& network, const TrainingOptions& options)
      : options_(options), slots_(slots_of(network, 2, options)) {}

  void update(size_t index, const float* gradient_sum, const UpdateScalars& scalars) override {
    Slot& s = slots_[index];
    if (s.frozen) return;
    const bool apart = options_.solver == "adamw";
    const double l2 = options_.l2 * s.l2_factor, rate = scalars.learning_rate * s.rate_factor;
    const auto t = static_cast<double>(scalars.iteration);
    const double first = 1 - std::pow(options_.gradient_decay, t);
    const double second = 1 - std::pow(options_.squared_gradient_decay, t);
    const kernels::AdamUpdate u{static_cast<float>(scalars.observations),
                                static_cast<float>(rate / first),
                                options_.gradient_decay,
                                options_.squared_gradient_decay,
                                static_cast<float>(1 / std::sqrt(second)),
                                static_cast<float>(options_.epsilon),
                                static_cast<float>(apart ? 0 : l2),
                                static_cast<float>(apart ? rate * l2 : 0)};
    kernels::table_for(s.value.device())
        .adam(values(s.value), values(s.state[0]), values(s.state[1]), gradient_sum,
              static_cast<size_t>(s.value.shape().elements()), u, queue_of(s.value.device()));
  }
  std::vector<Tensor> state(size_t index) const override { return slots_[index].state; }
  std::vector<std::string> state_names() const override { return {"mean", "square"}; }

 private:
  TrainingOptions options_;
  std::vector<Slot> slots_;
};

class Rmsprop final : public Solver {
 public:
  Rmsprop(Network& network, const TrainingOptions& options)
      : options_(options), slots_(slots_of(network, 1, options)) {}

  void update(size_t index, const float* gradient_sum, const UpdateScalars& scalars) override {
    Slot& s = slots_[index];
    if (s.frozen) return;
    const kernels::RmspropUpdate u{
        static_cast<float>(scalars.observations),
        static_cast<float>(scalars.learning_rate * s.rate_factor), options_.squared_gradient_decay,
        static_cast<float>(options_.epsilon), static_cast<float>(options_.l2 * s.l2_factor)};
    kernels::table_for(s.value.device())
        .rmsprop(values(s.value), values(s.state[0]), gradient_sum,
                 static_cast<size_t>(s.value.shape().elements()), u, queue_of(s.value.device()));
  }
  std::vector<Tensor> state(size_t index) const override { return slots_[index].state; }
  std::vector<std::string> state_names() const override { return {"square"}; }

 private:
  TrainingOptions options_;
  std::vector<Slot> slots_;
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
