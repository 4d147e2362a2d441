// The update on a device, from the gradient sums of an iteration.
#pragma once

#include <memory>
#include <vector>

#include "lockstep/engine/plan/plan.h"
#include "lockstep/train/gpu/device_mirror.h"
#include "lockstep/train/gpu/update_of_all.h"
#include "lockstep/train/optimizer/gradient_threshold.h"
#include "lockstep/train/optimizer/solver.h"

namespace lockstep {

// One thread at a time. Work is added to the device's default stream.
class DeviceUpdate {
 public:
  // `sums`: in the layout of the plans' gradients, on the network's device. Keeps references. Uses
  // freeze, loss_scale, gradient_threshold and its method of the options.
  DeviceUpdate(Network& network, Solver& solver, const TrainingOptions& options,
               const GradientLayout& layout, std::byte* sums, DeviceMirror& mirror);

  // Limits gradients, updates the parameters and their packed copies, and copies the values for a
  // digest to a slot of the mirror. The device must have finished earlier work for that slot.
  void add(const UpdateScalars& scalars, size_t slot);
  // Whether add() waits for the device, which is the case for thresholds of norms.
  bool waits() const { return threshold_.wanted() && !threshold_.of_elements(); }

 private:
  size_t count(size_t parameter) const;
  size_t blocks(size_t parameter) const;
  void place_squares();
  void convert();
  std::vector<double> cut(double observations);

  Network& network_;
  Solver& solver_;
  const GradientLayout& layout_;
  DeviceMirror& mirror_;
  DeviceMemory& memory_;
  const kernels::Table& table_;
  const GradientThreshold threshold_;
  const double loss_scale_;
  std::vector<bool> frozen_;  // by parameter

  // Row-major sums by parameter, and the conversions that fill them.
  std::vector<Memory> gradients_, scratch_;
  std::vector<kernels::BoundPass> conversions_;
  std::vector<float*> values_;

  // For thresholds of norms: squares by blocks, parameter after parameter, on the device and the
  // host.
  Memory squares_;
  std::unique_ptr<Pinned> squares_here_;

  std::unique_ptr<UpdateOfAll> of_all_;  // null: one update for each parameter
};

}  // namespace lockstep
