// The update of all learnables at once, on a device whose kernels do that.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "lockstep/train/device_mirror.h"
#include "lockstep/train/pinned.h"
#include "lockstep/train/solver.h"

namespace lockstep {

// The arrays are named to the device once; what changes from iteration to iteration are some
// numbers for each learnable. One thread at a time.
class UpdateOfAll {
 public:
  // Null where the device has no such kernel. `gradient_sums`: by learnable, row-major, on the
  // network's device; of learnables that are `frozen` nothing is updated. All must stay where it
  // is, and the solver.
  static std::unique_ptr<UpdateOfAll> make(Network& network, Solver& solver,
                                           const std::vector<float*>& gradient_sums,
                                           const std::vector<bool>& frozen);

  // The numbers of the next update, in one of DeviceMirror::kSlots places. The device must be done
  // with the last one from there.
  void note(size_t slot, size_t learnable, const UpdateScalars& scalars);
  // Adds the update to the device's default queue.
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
  size_t number_bytes_ = 0;  // of a learnable's numbers
  int64_t blocks_count_ = 0;
  Memory arrays_, numbers_, blocks_;
  std::unique_ptr<Pinned> numbers_here_;
};

}  // namespace lockstep
