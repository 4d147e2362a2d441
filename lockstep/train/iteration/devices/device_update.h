// The update on a device, from the gradient sums of an iteration.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "lockstep/engine/plan/plan.h"
#include "lockstep/train/iteration/devices/device_mirror.h"
#include "lockstep/train/iteration/update_of_all.h"
#include "lockstep/train/optimizer/gradient_threshold.h"
#include "lockstep/train/optimizer/solver.h"

namespace lockstep {

// The options of a training that the update uses.
struct DeviceUpdateSettings {
  DeviceUpdateSettings(const Network& network, const TrainingOptions& options);

  GradientThreshold threshold;
  double loss_scale = 1;
  // By parameter: the first epoch in which it learns, and whether it is frozen in an iteration.
  std::vector<int64_t> first_epochs;
  std::vector<bool> frozen_in(const UpdateScalars& scalars) const;

  // Whether the update waits for the device, which is the case for thresholds of norms.
  bool waits() const { return threshold.wanted() && !threshold.of_elements(); }
};

// One thread at a time. Work is added to the stream of the iteration.
class DeviceUpdate {
 public:
  // `sums`: in the layout of the plans' gradients, on the network's device. `frozen`: by parameter,
  // those that are not updated. Keeps references to the others.
  DeviceUpdate(Network& network, Solver& solver, const DeviceUpdateSettings& settings,
               std::vector<bool> frozen, const GradientLayout& layout, std::byte* sums,
               DeviceMirror& mirror, DeviceIteration& iteration);

  const std::vector<bool>& frozen() const { return frozen_; }

  // Limits gradients, updates the parameters and their packed copies, and has digests returned for
  // a slot. The device must have finished earlier work for that slot.
  void add(const UpdateScalars& scalars, size_t slot);

 private:
  size_t count(size_t parameter) const;
  size_t blocks(size_t parameter) const;
  void place_squares();
  void convert();
  void update(const UpdateScalars& scalars, size_t slot);
  void pack_and_digest();
  std::vector<double> cut(double observations);

  Network& network_;
  Solver& solver_;
  const GradientLayout& layout_;
  DeviceMirror& mirror_;
  DeviceIteration& iteration_;
  DeviceMemory& memory_;
  const kernels::Functions& functions_;
  const DeviceUpdateSettings& settings_;
  const std::vector<bool> frozen_;

  // Row-major sums by parameter, and the conversions that fill them.
  std::vector<Memory> gradients_, scratch_;
  std::vector<kernels::BoundPass> conversions_;
  std::vector<float*> values_;

  // For thresholds of norms: squares by blocks, parameter after parameter, on the device and the
  // host.
  Memory squares_;
  std::unique_ptr<Pinned> squares_here_;

  // The packed copies of all parameters, whose number was given.
  std::vector<kernels::BoundPass> packing_;
  std::optional<size_t> packed_copies_;

  std::unique_ptr<UpdateOfAll> of_all_;  // null: one update for each parameter
};

}  // namespace lockstep
