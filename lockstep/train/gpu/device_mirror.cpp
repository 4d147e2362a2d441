#include "lockstep/train/gpu/device_mirror.h"

#include <cstring>

#include "lockstep/base/numeric/alignment.h"
#include "lockstep/train/state/state_digest.h"

namespace lockstep {

DeviceMirror::DeviceMirror(Network& network, Solver& solver, DeviceMemory& memory)
    : network_(network), solver_(solver), memory_(memory), copies_(network.device()) {
  size_t bytes = 0;
  const auto place = [&](std::vector<size_t>& offsets, const Tensor& tensor) {
    offsets.push_back(bytes);
    bytes += round_up(tensor.bytes());
  };
  for (const auto& s : network.state()) place(state_offsets_, s.value);
  states_ = std::make_unique<Pinned>(memory, bytes);
  bytes = 0;
  for (size_t p = 0; p < network.parameters().size(); ++p) {
    place(value_offsets_, network.parameters()[p].value);
    for (const auto& array : solver.state(p)) place(value_offsets_, array);
  }
  value_bytes_ = bytes;
  values_ = std::make_unique<Pinned>(memory, kSlots * bytes);
  for (size_t slot = 0; slot < kSlots; ++slot) recorded_.emplace_back(memory, copies_.get());
}

// The recordings, the memory and the stream stay until the copies are done.
DeviceMirror::~DeviceMirror() {
  try {
    memory_.synchronize(copies_.get());
  } catch (const Error&) {
    // The device is lost. The next call that uses it reports the error.
  }
}

void DeviceMirror::fetch_states() {
  for (size_t k = 0; k < network_.state().size(); ++k) {
    const Tensor host = network_.state()[k].value.to({});
    std::memcpy(place_of(k), host.raw(), host.bytes());
  }
}

void DeviceMirror::send_state(int k) {
  const Tensor& state = network_.state()[static_cast<size_t>(k)].value;
  memory_.copy_from_host(state.raw(), this->state(k), state.bytes(), memory_.default_stream());
}

void DeviceMirror::send_states() {
  for (size_t k = 0; k < network_.state().size(); ++k) send_state(static_cast<int>(k));
}

void DeviceMirror::add_values(size_t slot) {
  void* const stream = copies_.get();
  memory_.follow(stream, memory_.default_stream());
  recorded_[slot].run([&] {
    for_values(slot, [&](size_t, const Tensor& tensor, std::byte* here) {
      memory_.copy_to_host(here, tensor.raw(), tensor.bytes(), stream);
    });
  });
  // The values change again behind the copies.
  memory_.follow(memory_.default_stream(), stream);
}

void DeviceMirror::add_values_back(size_t slot) {
  for_values(slot, [&](size_t, const Tensor& tensor, const std::byte* here) {
    memory_.copy_from_host(tensor.raw(), here, tensor.bytes(), memory_.default_stream());
  });
}

Digest DeviceMirror::digest(int64_t iteration, size_t slot) {
  std::vector<Digester> digesters(network_.parameters().size());
  for_values(slot, [&](size_t p, const Tensor& tensor, const std::byte* here) {
    digesters[p].bytes(here, tensor.bytes());
  });
  std::vector<Digest> digests;
  for (auto& digester : digesters) digests.push_back(digester.finish());
  return state_digest(network_, digests, iteration, [&](size_t k) { return place_of(k); });
}

}  // namespace lockstep
