// Host copies of a network's values that lie on a device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "lockstep/base/digest.h"
#include "lockstep/engine/device/pinned.h"
#include "lockstep/engine/device/recording.h"
#include "lockstep/engine/nn/network.h"
#include "lockstep/train/optimizer/solver.h"

namespace lockstep {

// One thread at a time. Work is added in order with the device's default stream.
class DeviceMirror {
 public:
  // Number of host copies of the parameters and the solver's arrays: after an iteration, after the
  // one before, and of the one under way.
  static constexpr size_t kSlots = 3;

  // Keeps references. Copies nothing yet.
  DeviceMirror(Network& network, Solver& solver, DeviceMemory& memory);
  ~DeviceMirror();
  DeviceMirror(const DeviceMirror&) = delete;
  DeviceMirror& operator=(const DeviceMirror&) = delete;

  // Copies the network's states from the device to the host, and back.
  void fetch_states();
  void send_state(int k);
  void send_states();
  float* state(int k) { return reinterpret_cast<float*>(place_of(static_cast<size_t>(k))); }
  // add_values() adds copies of the parameters and the solver's arrays to a slot. add_values_back()
  // adds copies from the slot to the device. The many small copies to a slot are recorded, on a
  // stream of their own, and launched at once.
  void add_values(size_t slot);
  void add_values_back(size_t slot);
  // state_digest() of the host's states and the values that add_values() copied. Waits until the
  // device has copied them.
  Digest digest(int64_t iteration, size_t slot);

 private:
  // Calls use(parameter, tensor, its host memory) for all parameters and solver arrays.
  template <class Use>
  void for_values(size_t slot, const Use& use) {
    std::byte* const first = values_->data() + slot * value_bytes_;
    size_t number = 0;
    for (size_t p = 0; p < network_.parameters().size(); ++p) {
      const auto place = [&] { return first + value_offsets_[number++]; };
      use(p, network_.parameters()[p].value, place());
      for (const auto& array : solver_.state(p)) use(p, array, place());
    }
  }
  std::byte* place_of(size_t k) { return states_->data() + state_offsets_[k]; }

  Network& network_;
  Solver& solver_;
  DeviceMemory& memory_;
  // The states; and the parameters and solver arrays of each slot.
  std::unique_ptr<Pinned> states_, values_;
  std::vector<size_t> state_offsets_, value_offsets_;
  size_t value_bytes_ = 0;  // of a slot
  DeviceStream copies_;
  std::vector<Recording> recorded_;  // by slot
};

}  // namespace lockstep
