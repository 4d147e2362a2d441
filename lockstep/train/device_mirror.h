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
  // Keeps references. Nothing is fetched yet.
  DeviceMirror(Network& network, Solver& solver, DeviceMemory& memory);

  // The network's states as they are on the device, and back.
  void fetch_states();
  void send_state(int k);
  float* state(int k) { return reinterpret_cast<float*>(place_of(static_cast<size_t>(k))); }
  // Adds copies of the learnables and the solver's arrays: the same work each time.
  void add_values();
  // state_digest(), of the states as they are here and of what add_values() found; waits for the
  // device.
  Digest digest(int64_t iteration);

 private:
  // Calls use(learnable, tensor, its place here) for all of them.
  template <class Use>
  void for_values(const Use& use) {
    size_t number = 0;
    for (size_t p = 0; p < network_.learnables().size(); ++p) {
      const auto place = [&] { return values_->data() + value_offsets_[number++]; };
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
};

}  // namespace lockstep
