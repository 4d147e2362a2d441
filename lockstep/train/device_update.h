// What follows from the sums of an iteration's gradients on a device.
#pragma once

#include <memory>
#include <vector>

#include "lockstep/train/device_mirror.h"
#include "lockstep/train/gradient_threshold.h"
#include "lockstep/train/shard_plans.h"
#include "lockstep/train/solver.h"
#include "lockstep/train/update_of_all.h"

namespace lockstep {

// One thread at a time; work is added to the device's default queue.
class DeviceUpdate {
 public:
  // `sums`: in the layout of the plans' gradients, on the network's device. Keeps references; of
  // the options freeze, loss_scale and gradient_threshold with its method matter.
  DeviceUpdate(Network& network, Solver& solver, const TrainingOptions& options,
               const ShardPlans& plans, std::byte* sums, DeviceMirror& mirror);

  // Cuts gradients, updates the learnables and their copies, and fetches for a slot of the mirror
  // what a digest covers. The device must be done with what was added for that slot the last time.
  void add(const UpdateScalars& scalars, size_t slot);
  // Whether add() waits for the device: where norms have a threshold.
  bool waits() const { return threshold_.wanted() && !threshold_.of_elements(); }

 private:
  size_t count(size_t learnable) const;
  size_t blocks(size_t learnable) const;
  void place_squares();
  void convert();
  std::vector<double> cut(double observations);

  Network& network_;
  Solver& solver_;
  const ShardPlans& plans_;
  DeviceMirror& mirror_;
  DeviceMemory& memory_;
  const kernels::Table& table_;
  const GradientThreshold threshold_;
  const double loss_scale_;
  std::vector<bool> frozen_;  // by learnable

  // Row-major sums, by learnable, and the conversions that fill them.
  std::vector<Memory> gradients_, scratch_;
  std::vector<kernels::BoundPass> conversions_;
  std::vector<float*> values_;

  // Their squares by blocks, learnable behind learnable, for thresholds of norms: there and here.
  Memory squares_;
  std::unique_ptr<Pinned> squares_here_;

  std::unique_ptr<UpdateOfAll> of_all_;  // null: learnable by learnable
};

}  // namespace lockstep
