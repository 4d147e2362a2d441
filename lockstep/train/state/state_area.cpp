#include "lockstep/train/state/state_area.h"

#include <cstring>

#include "lockstep/engine/nn/lowering.h"

namespace lockstep {
namespace {

template <class Use>
void for_each_tensor(const Network& network, const Solver& solver, Use use) {
  for (const auto& l : network.parameters()) use(l.value);
  for (const auto& s : network.state()) use(s.value);
  for (const auto& s : network.row_states()) use(s.value);
  for (size_t p = 0; p < network.parameters().size(); ++p) {
    for (const Tensor& array : solver.state(p)) use(array);
  }
}

}  // namespace

size_t state_bytes(const Network& network, const Solver& solver) {
  size_t bytes = 0;
  for_each_tensor(network, solver, [&](const Tensor& t) { bytes += t.bytes(); });
  return bytes;
}

void write_state(const Network& network, const Solver& solver, std::byte* to) {
  for_each_tensor(network, solver, [&](const Tensor& t) {
    const Tensor host = t.to({});
    std::memcpy(to, host.raw(), host.bytes());
    to += host.bytes();
  });
}

void read_state(const std::byte* from, Network& network, Solver& solver) {
  for_each_tensor(network, solver, [&](const Tensor& t) {
    const Tensor host(t.shape(), t.dtype());
    std::memcpy(host.raw(), from, host.bytes());
    t.copy_from(host);
    from += host.bytes();
  });
  network.packed().pack_all();
}

}  // namespace lockstep
