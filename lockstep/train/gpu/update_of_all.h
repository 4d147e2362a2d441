// Updates all parameters by one kernel, on devices that have such a kernel.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "lockstep/engine/device/allocator.h"
#include "lockstep/engine/device/pinned.h"
#include "lockstep/engine/kernels/backends/table.h"
#include "lockstep/train/gpu/device_iteration.h"
#include "lockstep/train/optimizer/solver.h"

namespace lockstep {

// The device gets the addresses of the arrays once. Only a few numbers for each parameter change
// between iterations. One thread at a time.
class UpdateOfAll {
 public:
  // Whether the device has such a kernel.
  static bool possible(const Network& network, const Solver& solver);
  // Returns null if it is not possible. `gradient_sums`: by parameter, row-major, on the
  // network's device. `frozen`: parameters that are not updated. The solver must stay alive, and
  // all arrays must keep their addresses. Updates are added to `stream`.
  static std::unique_ptr<UpdateOfAll> make(Network& network, Solver& solver,
                                           const std::vector<float*>& gradient_sums,
                                           const std::vector<bool>& frozen, void* stream);

  // Sets the numbers for the next update, in one of DeviceIteration::kSlots slots. The device must
  // have finished the last update from that slot.
  void note(size_t slot, size_t parameter, const UpdateScalars& scalars);
  // Adds the copy of these numbers to the stream.
  void send(size_t slot) const;
  // Adds the update by the numbers that were sent last.
  void add() const;

 private:
  UpdateOfAll(Network& network, Solver& solver, const std::vector<float*>& gradient_sums,
              const std::vector<bool>& frozen, void* stream);
  std::byte* here(size_t slot) const;

  Solver& solver_;
  DeviceMemory& memory_;
  const kernels::Table& table_;
  void* const stream_;
  size_t number_bytes_ = 0;  // of one parameter
  int64_t blocks_count_ = 0;
  Memory arrays_, numbers_, blocks_;
  std::unique_ptr<Pinned> numbers_here_;
};

}  // namespace lockstep
