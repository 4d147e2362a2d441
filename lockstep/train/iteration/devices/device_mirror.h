// Digests of a network's values that lie on a device, copies of earlier values there, and host
// copies of its states.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "lockstep/base/digest.h"
#include "lockstep/engine/device/pinned.h"
#include "lockstep/engine/nn/network.h"
#include "lockstep/train/optimizer/solver.h"
#include "lockstep/train/programs/devices/chunk_list.h"
#include "lockstep/train/programs/devices/device_iteration.h"

namespace lockstep {

// One thread at a time. Values are the parameters and the solver's arrays. All arrays must keep
// their addresses.
class DeviceMirror {
 public:
  // Keeps references. Copies nothing yet. The digests are what the iteration returns for the
  // updater.
  DeviceMirror(Network& network, Solver& solver, DeviceIteration& iteration);

  // Copies the network's states from the device to the host, and back.
  void fetch_states();
  void send_state(int k);
  void send_states();
  float* state(int k) { return reinterpret_cast<float*>(state_memory(static_cast<size_t>(k))); }

  // keep(): copies the present values, as those of a slot, within the device's memory. The last two
  // copies exist. bring_back() copies them back. Both add one launch to the iteration's stream.
  void keep(size_t slot);
  void bring_back(size_t slot);

  // The bytes of all digests.
  size_t digest_bytes() const { return digest_bytes_; }
  // Adds the digests of all parameters with their solver arrays to the iteration's stream.
  void add_digests() const;
  // state_digest() of the host's states and the digests that the device returned for a slot, after
  // its work is done.
  Digest digest(int64_t iteration, size_t slot) const;

 private:
  // Copies of all values, one for each iteration that may have to be undone.
  struct Copy {
    Memory memory;
    ChunkList to, back;
    std::optional<size_t> slot;
  };
  void make_copies();
  void make_digests();
  std::byte* state_memory(size_t k) const { return states_->data() + state_offsets_[k]; }

  Network& network_;
  Solver& solver_;
  DeviceIteration& iteration_;
  DeviceMemory& memory_;
  const kernels::Functions& functions_;
  std::unique_ptr<Pinned> states_;
  std::vector<size_t> state_offsets_;
  std::array<Copy, 2> copies_;  // made by the first keep()
  size_t next_ = 0;             // the older one
  // Of the digests: on the device, and by parameter the bytes that are digested and the offset of
  // the result.
  Memory arrays_, parameters_, blocks_, sums_;
  int64_t block_count_ = 0;
  size_t digest_bytes_ = 0;
  std::vector<int64_t> bytes_, results_;
};

}  // namespace lockstep
