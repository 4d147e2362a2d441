// What a host knows of a network whose values lie on a device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "lockstep/base/digest.h"
#include "lockstep/engine/nn/network.h"
#include "lockstep/train/pinned.h"
#include "lockstep/train/solver.h"

namespace lockstep {

// One thread at a time; work is added to the device's default queue.
class DeviceMirror {
 public:
  // Learnables and the solver's arrays have so many places here: those after an iteration, after
  // the one before, and of one that is under way.
  static constexpr size_t kSlots = 3;

  // Keeps references. Nothing is fetched yet.
  DeviceMirror(Network& network, Solver& solver, DeviceMemory& memory);

  // The network's states as they are on the device, and back.
  void fetch_states();
  void send_state(int k);
  void send_states();
  float* state(int k) { return reinterpret_cast<float*>(place_of(static_cast<size_t>(k))); }
  // Adds copies of the learnables and the solver's arrays to a place here, and of a place there.
  void add_values(size_t slot);
  void add_values_back(size_t slot);
  // state_digest(), of the states as they are here and of what add_values() found, when the device
  // is done with that.
  Digest digest(int64_t iteration, size_t slot);

 private:
  // Calls use(learnable, tensor, its place here) for all of them.
  template <class Use>
  void for_values(size_t slot, const Use& use) {
    std::byte* const first = values_->data() + slot * value_bytes_;
    size_t number = 0;
    for (size_t p = 0; p < network_.learnables().size(); ++p) {
      const auto place = [&] { return first + value_offsets_[number++]; };
      use(p, network_.learnables()[p].value, place());
      for (const auto& array : solver_.state(p)) use(p, array, place());
    }
  }
  std::byte* place_of(size_t k) { return states_->data() + state_offsets_[k]; }

  Network& network_;
  Solver& solver_;
  DeviceMemory& memory_;
  // The states; and learnables with the solver's arrays, for digests.
  std::unique_ptr<Pinned> states_, values_;
  std::vector<size_t> state_offsets_, value_offsets_;
  size_t value_bytes_ = 0;  // of a slot
};

}  // namespace lockstep
