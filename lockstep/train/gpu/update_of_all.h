// Updates all parameters by one kernel, on devices that have such a kernel.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "lockstep/engine/device/allocator.h"
#include "lockstep/engine/device/pinned.h"
#include "lockstep/engine/kernels/backends/table.h"
#include "lockstep/train/gpu/device_mirror.h"
#include "lockstep/train/optimizer/solver.h"

namespace lockstep {

// The device gets the addresses of the arrays once. Only a few numbers for each parameter change
// between iterations. One thread at a time.
class UpdateOfAll {
 public:
  // Returns null if the device has no such kernel. `gradient_sums`: by parameter, row-major, on the
  // network's device. `frozen`: parameters that are not updated. The solver must stay alive, and
  // all arrays must keep their addresses.
  static std::unique_ptr<UpdateOfAll> make(Network& network, Solver& solver,
                                           const std::vector<float*>& gradient_sums,
                                           const std::vector<bool>& frozen);

  // Sets the numbers for the next update, in one of DeviceMirror::kSlots slots. The device must
  // have finished the last update from that slot.
  void note(size_t slot, size_t parameter, const UpdateScalars& scalars);
  // Adds the update to the device's default stream.
  void add(size_t slot) const;

 private:
  UpdateOfAll(Network& network, Solver& solver, const std::vector<float*>& gradient_sums,
              const std::vector<bool>& frozen);
  template <class Entry>
  Memory bring(const std::vector<Entry>& entries);
  std::byte* here(size_t slot) const;

  Solver& solver_;
  DeviceMemory& memory_;
  const kernels::Table& table_;
  const Device device_;
  size_t number_bytes_ = 0;  // of one parameter
  int64_t blocks_count_ = 0;
  Memory arrays_, numbers_, blocks_;
  std::unique_ptr<Pinned> numbers_here_;
};

}  // namespace lockstep
