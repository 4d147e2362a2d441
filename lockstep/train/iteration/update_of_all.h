// Updates all parameters by one kernel, on devices that have such a kernel.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "lockstep/engine/device/allocator.h"
#include "lockstep/engine/kernels/backends/functions.h"
#include "lockstep/train/optimizer/solver.h"
#include "lockstep/train/programs/devices/device_iteration.h"

namespace lockstep {

// The device gets the addresses of the arrays once. Only a few numbers for each parameter change
// between iterations. One thread at a time.
class UpdateOfAll {
 public:
  // Whether the device has such a kernel.
  static bool possible(const Network& network, const Solver& solver);
  // Returns null if it is not possible. `gradient_sums`: by parameter, row-major, on the
  // network's device. `frozen`: parameters that are not updated. The solver must stay alive, and
  // all arrays must keep their addresses. The numbers of the next update are the iteration's
  // memory of the updater; bytes_to_send() gives their size.
  static size_t bytes_to_send(const Network& network, const Solver& solver);
  static std::unique_ptr<UpdateOfAll> make(Network& network, Solver& solver,
                                           const std::vector<float*>& gradient_sums,
                                           const std::vector<bool>& frozen,
                                           const DeviceIteration& iteration);

  // Sets the numbers for the next update, in one of the iteration's slots. The device must have
  // finished the last update from that slot.
  void note(size_t slot, size_t parameter, const UpdateScalars& scalars);
  // Adds the update to the iteration's stream, by the numbers that were sent last.
  void add() const;

 private:
  UpdateOfAll(Network& network, Solver& solver, const std::vector<float*>& gradient_sums,
              const std::vector<bool>& frozen, const DeviceIteration& iteration);

  Solver& solver_;
  const kernels::Functions& functions_;
  const DeviceIteration& iteration_;
  size_t number_bytes_ = 0;  // of one parameter
  int64_t blocks_count_ = 0;
  Memory arrays_, blocks_;
};

}  // namespace lockstep
