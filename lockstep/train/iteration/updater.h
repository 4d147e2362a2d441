// Changes the values of an iteration: parameters, solver state and network state.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lockstep/base/digest.h"
#include "lockstep/train/optimizer/solver.h"

namespace lockstep {

// One thread at a time. Slots are those of ShardIteration.
class Updater {
 public:
  virtual ~Updater() = default;

  // Divides the sum of gradients, applies the threshold and the solver, and updates the network's
  // packed copies. On a device it adds the work to the default stream.
  virtual void apply(const UpdateScalars& scalars, size_t slot) = 0;
  // Waits until the device has applied the update.
  virtual void wait() {}
  // Whether apply() itself waits for the device.
  virtual bool waits() const { return false; }
  // Host memory of network state number k. states_changed() passes changes there to the network.
  virtual float* state(int k) = 0;
  virtual void states_changed() {}
  // state_digest() after apply() and changes of states.
  virtual Digest digest(int64_t iteration, size_t slot) = 0;

  // For iterations that run ahead. keep(): stores the present values, which are those after the
  // slot's iteration. restore(): brings those values back.
  virtual void keep(size_t slot) { (void)slot; }
  virtual void restore(size_t slot) { (void)slot; }
  // Tells the updater that other code has changed values.
  virtual void values_changed() {}
};

}  // namespace lockstep
