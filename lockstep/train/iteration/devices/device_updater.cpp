#include "lockstep/train/iteration/devices/device_updater.h"

#include <utility>

#include "lockstep/base/numeric/alignment.h"
#include "lockstep/engine/nn/lowering.h"
#include "lockstep/train/options/options.h"

namespace lockstep {

DeviceUpdater::DeviceUpdater(Network& network, Solver& solver, const TrainingOptions& options,
                             DeviceExecutor& executor, const GradientLayout& layout,
                             std::shared_ptr<DeviceIteration> iteration)
    : network_(network),
      solver_(solver),
      settings_(network, options),
      executor_(executor),
      layout_(layout),
      memory_(memory_of(network.device())),
      iteration_(std::move(iteration)),
      mirror_(network, solver, *iteration_) {
  iteration_->reserve_for_updater({.sent = round_up(UpdateOfAll::bytes_to_send(network, solver)),
                                   .returned = round_up(mirror_.digest_bytes())});
  if (settings_.threshold.wanted() || !UpdateOfAll::possible(network, solver)) {
    iteration_->never_whole();
  }
}

// The address of the sum changes when its memory grows.
void DeviceUpdater::bind() {
  if (update_ && gradient_sum_ == executor_.gradient_sum()) return;
  gradient_sum_ = executor_.gradient_sum();
  iteration_->forget();
  update_.reset();
}

void DeviceUpdater::apply(const UpdateScalars& scalars, size_t slot) {
  memory_.activate();
  bind();
  std::vector<bool> frozen = settings_.frozen_in(scalars);
  if (!update_ || update_->frozen() != frozen) make_update(std::move(frozen));
  update_->add(scalars, slot);
}

// Layers that begin to learn get buffers in the update, so recordings of earlier ones end. What is
// under way still uses the memory of the update before.
void DeviceUpdater::make_update(std::vector<bool> frozen) {
  if (update_) {
    iteration_->wait();
    wait();
    iteration_->forget();
  }
  update_.emplace(network_, solver_, settings_, std::move(frozen), layout_, gradient_sum_, mirror_,
                  *iteration_);
}

void DeviceUpdater::wait() { memory_.synchronize(memory_.default_stream()); }

void DeviceUpdater::states_changed() {
  memory_.activate();
  mirror_.send_states();
}

Digest DeviceUpdater::digest(int64_t iteration, size_t slot) {
  return mirror_.digest(iteration, slot);
}

void DeviceUpdater::keep(size_t slot) {
  memory_.activate();
  mirror_.keep(slot);
}

void DeviceUpdater::restore(size_t slot) {
  memory_.activate();
  mirror_.bring_back(slot);
  network_.packed().pack_all();
  mirror_.send_states();
  memory_.synchronize(memory_.default_stream());
}

void DeviceUpdater::values_changed() { mirror_.fetch_states(); }

}  // namespace lockstep
