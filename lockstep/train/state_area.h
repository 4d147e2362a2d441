// All that iterations change, in memory that processes share.
#pragma once

#include <cstddef>

#include "lockstep/engine/nn/network.h"
#include "lockstep/train/solver.h"

namespace lockstep {

// Learnables, network state and solver state, one behind the other, row-major; in bytes. One thread
// at a time for one network.
size_t state_bytes(const Network& network, const Solver& solver);
void write_state(const Network& network, const Solver& solver, std::byte* to);
// Also renews the network's packed copies.
void read_state(const std::byte* from, Network& network, Solver& solver);

}  // namespace lockstep
