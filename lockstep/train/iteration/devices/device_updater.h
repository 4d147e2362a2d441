// Updates on a device, with digests and copies of its values.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "lockstep/train/iteration/devices/device_executor.h"
#include "lockstep/train/iteration/devices/device_mirror.h"
#include "lockstep/train/iteration/devices/device_update.h"
#include "lockstep/train/iteration/updater.h"

namespace lockstep {

class DeviceUpdater final : public Updater {
 public:
  // Updates from the executor's gradient sum. All references must stay alive. Uses freeze,
  // unfreeze, loss_scale, gradient_threshold and its method of the options. Work is added to
  // `iteration`.
  DeviceUpdater(Network& network, Solver& solver, const TrainingOptions& options,
                DeviceExecutor& executor, const GradientLayout& layout,
                std::shared_ptr<DeviceIteration> iteration);

  void apply(const UpdateScalars& scalars, size_t slot) override;
  void wait() override;
  bool waits() const override { return settings_.waits(); }
  float* state(int k) override { return mirror_.state(k); }
  void states_changed() override;
  Digest digest(int64_t iteration, size_t slot) override;
  void keep(size_t slot) override;
  void restore(size_t slot) override;
  void values_changed() override;

 private:
  void bind();
  void make_update(std::vector<bool> frozen);

  Network& network_;
  Solver& solver_;
  const DeviceUpdateSettings settings_;
  DeviceExecutor& executor_;
  const GradientLayout& layout_;
  DeviceMemory& memory_;
  const std::shared_ptr<DeviceIteration> iteration_;
  DeviceMirror mirror_;
  std::byte* gradient_sum_ = nullptr;  // that the update reads
  std::optional<DeviceUpdate> update_;
};

}  // namespace lockstep
